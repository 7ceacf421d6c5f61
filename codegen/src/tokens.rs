//! The front end of the derive and of the build script: attributes, as syn reads them, become fields.
//!
//! In: a struct. Out: a [`Declaration`] and the tokens of each [`Place`], to point at mistakes. Must not know any
//! field name: `name`, `name(...)`, `name = value` and `name = word(...)` are all there is. The one exception is `crate`,
//! which is about Rust and not about a Shape.

mod value;

use crate::declaration::{Declaration, Subject};
use kernwright_plan::field::{Field, Place, Problem, Value};
use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt as _;
use syn::{Attribute, Data, DeriveInput, Meta};

/// Where the facade is, if its dependency was renamed; a setting of the first section.
const FACADE: &str = "crate";

/// Twice what any field needs: the reader calls itself, and a stack ends.
const DEEPEST: usize = 8;

/// The tokens of each place that was given out; the first are the struct's name.
#[derive(Clone, Debug)]
pub struct Places(Vec<TokenStream>);

impl Places {
    /// A problem as an error at its tokens; at the struct's name if something is missing altogether.
    #[must_use]
    pub fn error(&self, problem: &Problem) -> syn::Error {
        let tokens = problem.at.and_then(|Place(at)| self.0.get(at)).or_else(|| self.0.first());
        syn::Error::new_spanned(tokens, &problem.message)
    }

    /// All problems as one error, which reports each at its tokens; `None` if there are none.
    #[must_use]
    pub fn errors(&self, problems: &[Problem]) -> Option<syn::Error> {
        problems.iter().map(|problem| self.error(problem)).reduce(|mut all, error| {
            all.combine(error);
            all
        })
    }
}

/// What the attributes of one struct say.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// The fields of its model.
    pub declaration: Declaration,
    /// Where they were written.
    pub places: Places,
    /// The path of the facade: `::kernwright`, or what `#[model(crate = ...)]` says (`#[attention(crate = ...)]`).
    pub facade: TokenStream,
}

/// Reads the attributes of one struct that declares a model.
#[must_use]
pub fn read(input: &DeriveInput) -> Attributes {
    read_as(Subject::Model, input)
}

/// Reads the attributes of one struct.
#[must_use]
pub fn read_as(subject: Subject, input: &DeriveInput) -> Attributes {
    let name = input.ident.unraw().to_string();
    let declaration = Declaration { subject, name, ..Declaration::default() };
    let mut reader = Reader { declaration, places: Vec::new(), facade: None };
    reader.place(&input.ident);
    reader.item_kind(input);
    for attribute in &input.attrs {
        reader.section(attribute);
    }
    Attributes {
        declaration: reader.declaration,
        places: Places(reader.places),
        facade: reader.facade.unwrap_or_else(|| quote!(::kernwright)),
    }
}

/// The section an attribute opens, if it is one of ours.
fn section_name(subject: Subject, attribute: &Attribute) -> Option<&'static str> {
    subject.sections().iter().copied().find(|section| attribute.path().is_ident(section))
}

struct Reader {
    declaration: Declaration,
    places: Vec<TokenStream>,
    facade: Option<TokenStream>,
}

impl Reader {
    fn place(&mut self, tokens: impl ToTokens) -> Place {
        self.places.push(tokens.into_token_stream());
        Place(self.places.len() - 1)
    }

    fn problem(&mut self, tokens: impl ToTokens, message: impl Into<String>) -> Place {
        let at = self.place(tokens);
        self.declaration.problems.push(Problem { at: Some(at), message: message.into() });
        at
    }

    fn field(&mut self, path: &str, value: Value, at: Place, value_at: Place) {
        self.declaration.fields.push(Field { path: path.to_owned(), value, at, value_at });
    }

    /// A field whose name is known and whose form is wrong.
    fn broken(&mut self, path: &str, tokens: impl ToTokens, message: impl Into<String>) {
        let at = self.problem(tokens, message);
        self.field(path, Value::Text(String::new()), at, at);
    }

    /// Only a struct without parameters declares something.
    fn item_kind(&mut self, input: &DeriveInput) {
        let (subject, noun) = (self.declaration.subject, self.declaration.subject.noun());
        let fields = match &input.data {
            Data::Struct(data) => Some(&data.fields),
            Data::Enum(data) => {
                self.problem(data.enum_token, format!("{noun} is declared on a `struct`, found an `enum`"));
                None
            }
            Data::Union(data) => {
                self.problem(data.union_token, format!("{noun} is declared on a `struct`, found a `union`"));
                None
            }
        };
        if !input.generics.params.is_empty() {
            let message =
                format!("{noun} takes no generic parameters: every size is a literal in its attributes");
            self.problem(&input.generics.params, message);
        }
        for attribute in fields.into_iter().flatten().flat_map(|field| &field.attrs) {
            if let Some(section) = section_name(subject, attribute) {
                let message = format!("`#[{section}(...)]` belongs on the struct, not on one of its fields");
                self.problem(attribute.path(), message);
            }
        }
    }

    fn section(&mut self, attribute: &Attribute) {
        let Some(section) = section_name(self.declaration.subject, attribute) else { return };
        let path = attribute.path();
        if self.declaration.fields.iter().any(|field| field.path == section) {
            let message = format!("`#[{section}(...)]` is written twice: put all its fields in one");
            self.problem(path, message);
        } else {
            let at = match &attribute.meta {
                Meta::Path(_) => self.place(path),
                Meta::List(list) if matches!(list.delimiter, syn::MacroDelimiter::Paren(_)) => {
                    self.place(path)
                }
                other => self.problem(other, format!("expected `#[{section}(...)]`")),
            };
            self.field(section, Value::Flag, at, at);
        }
        if let Meta::List(list) = &attribute.meta {
            self.items(section, list.tokens.clone());
        }
    }

    /// Items between commas, below `parent`.
    fn items(&mut self, parent: &str, stream: TokenStream) {
        let tokens = without_invisible_groups(stream);
        let mut rest = &tokens[..];
        while !rest.is_empty() {
            let end = rest.iter().position(|token| is_punct(token, ',')).unwrap_or(rest.len());
            if end == 0 {
                self.problem(&rest[0], "expected a name, found `,`");
            } else {
                self.item(parent, &rest[..end]);
            }
            rest = rest.get(end + 1..).unwrap_or_default();
        }
    }

    fn item(&mut self, parent: &str, item: &[TokenTree]) {
        let Some((TokenTree::Ident(name), rest)) = item.split_first() else {
            self.problem(stream(item), format!("expected a name, found `{}`", stream(item)));
            return;
        };
        let path = format!("{parent}.{}", name.unraw());
        if name == FACADE && self.declaration.subject.sections().first() == Some(&parent) {
            return self.facade(name, rest);
        }
        match rest {
            [] => self.flag(&path, name),
            [TokenTree::Group(group), rest @ ..] if group.delimiter() == Delimiter::Parenthesis => {
                self.flag(&path, name);
                self.settings(&path, group);
                self.missing_comma(parent, rest);
            }
            [equals, rest @ ..] if is_punct(equals, '=') => self.assignment(parent, name, equals, rest),
            [TokenTree::Ident(_), ..] => {
                self.flag(&path, name);
                self.missing_comma(parent, rest);
            }
            [other, ..] => {
                let message =
                    format!("expected `,`, `=` or `(...)` after `{name}`, found `{}`", start_of(other));
                self.broken(&path, other, message);
            }
        }
    }

    /// `crate = my_facade::kernwright`.
    fn facade(&mut self, name: &Ident, rest: &[TokenTree]) {
        let written = rest.split_first().filter(|(equals, _)| is_punct(equals, '=')).map(|(_, path)| path);
        let (path, after) = written.unwrap_or_default().split_at(path_length(written.unwrap_or_default()));
        if path.is_empty() {
            let found = if rest.is_empty() { "nothing".to_owned() } else { format!("`{}`", stream(rest)) };
            let at = if rest.is_empty() { name.to_token_stream() } else { stream(rest) };
            let message = format!("`crate` must be a path: `crate = my_facade::kernwright`, found {found}");
            self.problem(at, message);
        } else if self.facade.replace(stream(path)).is_some() {
            self.problem(name, "`crate` is given twice");
        } else {
            self.missing_comma(self.declaration.subject.sections()[0], after);
        }
    }

    /// What stands in the brackets after a flag or a word.
    fn settings(&mut self, path: &str, group: &Group) {
        if path.matches('.').count() <= DEEPEST {
            self.items(path, group.stream());
        } else {
            self.problem(group, format!("settings nest at most {DEEPEST} deep"));
        }
    }

    fn flag(&mut self, path: &str, name: &Ident) {
        let at = self.place(name);
        self.field(path, Value::Flag, at, at);
    }

    /// What follows a whole item without a comma between.
    fn missing_comma(&mut self, parent: &str, rest: &[TokenTree]) {
        let Some(first) = rest.first() else { return };
        self.problem(first, format!("expected `,` before `{}`", start_of(first)));
        if matches!(first, TokenTree::Ident(_)) {
            self.item(parent, rest);
        }
    }

    fn assignment(&mut self, parent: &str, name: &Ident, equals: &TokenTree, rest: &[TokenTree]) {
        let path = format!("{parent}.{}", name.unraw());
        if rest.is_empty() {
            return self.broken(&path, equals, format!("`{name}` has no value after `=`"));
        }
        let whole = value::whole(rest);
        let next_is_item = match &rest[whole..] {
            [TokenTree::Ident(_)] => whole > 0,
            [TokenTree::Ident(_), TokenTree::Group(_), ..] => whole > 0,
            [TokenTree::Ident(_), next, ..] => whole > 0 && is_punct(next, '='),
            _ => false,
        };
        let (value, after) = if next_is_item { rest.split_at(whole) } else { (rest, &rest[rest.len()..]) };
        match value {
            [TokenTree::Ident(word), TokenTree::Group(group)]
                if group.delimiter() == Delimiter::Parenthesis =>
            {
                let (at, value_at) = (self.place(name), self.place(word));
                self.field(&path, Value::Word(word.unraw().to_string()), at, value_at);
                self.settings(&path, group);
            }
            _ => match value::read(value) {
                Ok(read) => {
                    let (at, value_at) = (self.place(name), self.place(stream(value)));
                    self.field(&path, read, at, value_at);
                }
                Err(value::NoValue { tokens, message }) => {
                    self.broken(&path, tokens, format!("`{name}` {message}"));
                }
            },
        }
        self.missing_comma(parent, after);
    }
}

/// How many of the first tokens are a path: `kw`, `::kw`, `my_facade::kernwright`; 0 if they begin none.
fn path_length(tokens: &[TokenTree]) -> usize {
    let is_separator =
        |at: usize| tokens.get(at..at + 2).is_some_and(|two| two.iter().all(|token| is_punct(token, ':')));
    let mut length = if is_separator(0) { 2 } else { 0 };
    while let Some(TokenTree::Ident(_)) = tokens.get(length) {
        length += 1;
        if !is_separator(length) {
            return length;
        }
        length += 2;
    }
    0
}

fn stream(tokens: &[TokenTree]) -> TokenStream {
    tokens.iter().cloned().collect()
}

/// A token as a message shows it: of a group only the bracket that opens it.
fn start_of(token: &TokenTree) -> String {
    match token {
        TokenTree::Group(group) => match group.delimiter() {
            Delimiter::Parenthesis => "(".into(),
            Delimiter::Brace => "{".into(),
            _ => "[".into(),
        },
        other => other.to_string(),
    }
}

fn is_punct(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// A value that came through a `macro_rules!` variable is wrapped in a group without brackets.
fn without_invisible_groups(stream: TokenStream) -> Vec<TokenTree> {
    let mut tokens = Vec::new();
    for token in stream {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
                tokens.extend(without_invisible_groups(group.stream()));
            }
            other => tokens.push(other),
        }
    }
    tokens
}

#[cfg(test)]
mod tests;
