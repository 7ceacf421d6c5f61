//! What a build script sees of a package: the models in its files, read as text.
//!
//! In: files. Out: the same kernels that the derive generates, and the same copies below target/. Silent on mistakes in
//! attributes: a build script runs first, and its error, which has no place, would hide the derive's good one.
//!
//! The derive knows which of several structs of one name it sees only by counting them. So a name is left to it where
//! the count may differ: behind a `cfg`, inside a function, in the hands of another macro.

use crate::cubins::Cubins;
use crate::declaration::{Declared, Subject};
use crate::generate::{Generated, declared};
use crate::tables::Tables;
use crate::tokens;
use crate::write::{Owner, write};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens as _;
use std::fs;
use std::path::{Path, PathBuf};
use syn::{Attribute, DeriveInput, Item, Meta};

/// A model, or attention alone, in a file.
#[derive(Clone, Debug)]
pub struct Model {
    /// Whose copies its are.
    pub owner: Owner,
    /// What it declares.
    pub declared: Declared,
    /// Its kernels for each target.
    pub kernels: Vec<Generated>,
}

/// The models of a file of a package with these tables; `overriding` is the content of `KERNWRIGHT_TARGETS`.
#[must_use]
pub fn models(file: &Path, package: &str, overriding: Option<&str>, tables: &Tables) -> Vec<Model> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let Ok(syntax) = syn::parse_file(&text) else { return Vec::new() };
    let tokens = syntax.to_token_stream();
    let mut seen = Seen::default();
    seen.walk(syntax.items, !is_conditional(&syntax.attrs));
    let mut models = Vec::new();
    let mut names = Vec::new();
    for (input, subject) in seen.structs.iter().filter_map(|input| Some((input, derived(input)?))) {
        let declaration = tokens::read_as(subject, input).declaration;
        let name = declaration.name.clone();
        let nth = names.iter().filter(|other| **other == name).count();
        names.push(name.clone());
        let ident = input.ident.to_string();
        let n_seen = seen.structs.iter().filter(|other| other.ident == input.ident).count();
        if count(&tokens, &ident, Some("struct")) != n_seen || count(&seen.macros, &ident, None) > 0 {
            continue;
        }
        let Ok((declared, kernels)) = declared(&declaration, overriding, tables) else { continue };
        let source = file.to_string_lossy().replace('\\', "/");
        let owner = Owner { package: package.to_owned(), model: name, source, nth };
        models.push(Model { owner, declared, kernels });
    }
    models
}

/// Writes the copies of a model in `file`, as far as that is possible, and says where those of its kernels are.
pub fn copy(file: &Path, model: &Model, target_dir: &Path, cubins: Option<&Cubins>) -> Vec<PathBuf> {
    let Model { owner, declared, kernels } = model;
    let copies = write(target_dir, owner, &declared.text(), kernels, cubins).unwrap_or_default();
    // Cargo runs the script again if a file is newer than its last run, and these were just written.
    if let Ok(modified) = fs::metadata(file).and_then(|data| data.modified()) {
        for copy in &copies {
            let _ = fs::File::options().append(true).open(copy).and_then(|copy| copy.set_modified(modified));
        }
    }
    copies
}

/// What the items of a file are, modules included.
#[derive(Default)]
struct Seen {
    /// The structs that are there whatever is configured.
    structs: Vec<DeriveInput>,
    /// What is handed to macros that may declare more, and what such macros are made of.
    macros: TokenStream,
}

impl Seen {
    fn walk(&mut self, items: Vec<Item>, is_plain: bool) {
        for item in items {
            match item {
                Item::Struct(item) if is_plain && !is_conditional(&item.attrs) => {
                    self.structs.push(DeriveInput::from(item));
                }
                Item::Mod(module) => {
                    let is_plain = is_plain && !is_conditional(&module.attrs);
                    self.walk(module.content.map(|(_, items)| items).unwrap_or_default(), is_plain);
                }
                Item::Macro(item) => self.macros.extend(item.mac.tokens),
                _ => {}
            }
        }
    }
}

fn is_conditional(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| ["cfg", "cfg_attr"].iter().any(|name| attribute.path().is_ident(name)))
}

/// How often a word stands anywhere in some tokens; only after `keyword`, if there is one.
fn count(stream: &TokenStream, word: &str, keyword: Option<&str>) -> usize {
    let mut before = None;
    let mut n = 0;
    for token in stream.clone() {
        if let TokenTree::Group(group) = &token {
            n += count(&group.stream(), word, keyword);
        }
        let text = matches!(token, TokenTree::Ident(_)).then(|| token.to_string());
        let is_after = keyword.is_none() || before.as_deref() == keyword;
        n += usize::from(is_after && text.as_deref() == Some(word));
        before = text;
    }
    n
}

/// What a struct declares, by the first of our derives that it has.
fn derived(input: &DeriveInput) -> Option<Subject> {
    input.attrs.iter().find_map(|attribute| {
        let mut found = None;
        if let (true, Meta::List(_)) = (attribute.path().is_ident("derive"), &attribute.meta) {
            let _ = attribute.parse_nested_meta(|derive| {
                let last = derive.path.segments.last();
                let mut all = [Subject::Model, Subject::Attention].into_iter();
                found = found.or(all.find(|one| last.is_some_and(|last| last.ident == one.derive())));
                Ok(())
            });
        }
        found
    })
}

#[cfg(test)]
mod tests;
