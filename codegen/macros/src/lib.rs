//! The derive macro of Kernwright.
//!
//! In: a struct with attributes; cubins, if a build script made some. Out: the constants of `kernwright::Model`, and
//! copies of the generated kernels below target/. Must not know field names: the Shape knows them.

use kernwright_codegen::cubins::{Cubin, Cubins};
use kernwright_codegen::generate::{Generated, declared};
use kernwright_codegen::target_dir::Whereabouts;
use kernwright_codegen::tokens::{self, Attributes};
use kernwright_codegen::write::{Owner, write};
use kernwright_plan::shape::Shape;
use proc_macro2::{Span, TokenStream};
use quote::quote;
use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use syn::{DeriveInput, parse_macro_input};

/// Declares a model; the attributes are described in `docs/attribute.md`.
#[proc_macro_derive(Transformer, attributes(model, attention, feed_forward, target))]
pub fn derive_transformer(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    let Attributes { declaration, places, facade } = tokens::read(&input);
    let owner = owner(&declaration.name, input.ident.span());
    let overriding = env::var("KERNWRIGHT_TARGETS").ok();
    let cubins = Cubins::of_this_process();
    let expanded = match declared(&declaration, overriding.as_deref()) {
        Ok((shape, all)) => {
            write_copies(&owner, &shape, &all, cubins.as_ref());
            let texts = [&*shape.text(), &shape.targets_text()];
            model(&input, &facade, &declaration.name, texts, &all, cubins.as_ref())
        }
        Err(problems) => {
            let errors = places.errors(&problems).map(|error| error.to_compile_error());
            // Without it, every use of the model would be an error too, and bury these.
            let stub = model(&input, &facade, &declaration.name, ["", ""], &[], None);
            quote!(#errors #stub)
        }
    };
    expanded.into()
}

/// The constants, `SHAPE` and `TARGETS` as given. Text that several GPUs share is there once.
fn model(
    input: &DeriveInput,
    facade: &TokenStream,
    name: &str,
    [shape, targets]: [&str; 2],
    all: &[Generated],
    cubins: Option<&Cubins>,
) -> TokenStream {
    let mut texts: Vec<&str> = all.iter().map(|one| one.text.as_str()).collect();
    texts.sort_unstable();
    texts.dedup();
    let sources = all.iter().map(|Generated { arch, kernel, text, .. }| {
        let arch = &*arch.name;
        let index = texts.partition_point(|other| *other < text.as_str());
        quote!(__kernwright::Source { arch: #arch, kernel: #kernel, text: TEXTS[#index] })
    });
    let cubins = all.iter().filter_map(|one| {
        let Cubin { path, remarks } = cubins?.find(one)?;
        let (arch, kernel, log, path) = (&*one.arch.name, &one.kernel, remarks.log, path.to_str()?);
        let cubin = quote!(::core::include_bytes!(#path));
        Some(quote!(__kernwright::Cubin { arch: #arch, kernel: #kernel, log: #log, cubin: #cubin }))
    });
    let ident = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    quote! {
        const _: () = {
            // Named once, so that a facade that is not there is one error.
            use #facade as __kernwright;
            // Cargo compiles the crate again when the variable changes.
            const _: ::core::option::Option<&str> = ::core::option_env!("KERNWRIGHT_TARGETS");
            const TEXTS: &[&str] = &[#(#texts),*];
            #[automatically_derived]
            impl #impl_generics __kernwright::Model for #ident #type_generics #where_clause {
                const NAME: &'static str = #name;
                const SHAPE: &'static str = #shape;
                const TARGETS: &'static str = #targets;
                const SOURCES: &'static [__kernwright::Source] = &[#(#sources),*];
                const CUBINS: &'static [__kernwright::Cubin] = &[#(#cubins),*];
            }
        };
    }
}

/// Copies to read. A failure is nobody's error: the text that counts is in the constants.
fn write_copies(owner: &Owner, shape: &Shape, all: &[Generated], cubins: Option<&Cubins>) {
    let is_editor = env::current_exe().is_ok_and(|exe| exe.to_string_lossy().contains("rust-analyzer"));
    let target_dir = Whereabouts::of_this_process().target_dir();
    if let (false, false, Some(target_dir)) = (is_editor, owner.package.is_empty(), target_dir) {
        let _ = write(&target_dir, owner, shape, all, cubins);
    }
}

fn owner(model: &str, at: Span) -> Owner {
    let source = source_of(at);
    let nth = nth(model, &source);
    Owner { package: env::var("CARGO_PKG_NAME").unwrap_or_default(), model: model.to_owned(), source, nth }
}

/// How many structs of this name in this file the compiler has shown us before. It shows them in the order of the file
/// and says of none in which module it lies, so only a memory of the whole process tells two of one name apart.
fn nth(model: &str, source: &str) -> usize {
    static SEEN: Mutex<BTreeMap<(String, String), usize>> = Mutex::new(BTreeMap::new());
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let next = seen.entry((model.to_owned(), source.to_owned())).or_default();
    let nth = *next;
    *next += 1;
    nth
}

/// The file of a span, relative to its package, as a build script would name it.
fn source_of(at: Span) -> String {
    let file = at.local_file().unwrap_or_else(|| PathBuf::from(at.file()));
    let file = env::current_dir().map(|folder| folder.join(&file)).unwrap_or(file);
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    file.strip_prefix(package).unwrap_or(&file).to_string_lossy().replace('\\', "/")
}
