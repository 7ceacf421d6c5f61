//! The derive macros of Kernwright.
//!
//! In: a struct with attributes; cubins, if a build script made some. Out: the constants of `kernwright::Model` or of
//! `kernwright::Attention`, and copies of the generated kernels below target/. Must not know field names: the Shape knows them.

use kernwright_codegen::cubins::{Cubin, Cubins};
use kernwright_codegen::declaration::{Declared, Subject};
use kernwright_codegen::generate::{Generated, declared};
use kernwright_codegen::tables::Tables;
use kernwright_codegen::target_dir::Whereabouts;
use kernwright_codegen::tokens::{self, Attributes};
use kernwright_codegen::write::{Owner, write};
use kernwright_plan::shape::Layout;
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use syn::{DeriveInput, parse_macro_input};

/// Declares a model; the attributes are described in `docs/attribute.md`.
#[proc_macro_derive(Transformer, attributes(model, attention, feed_forward, target))]
pub fn derive_transformer(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive(Subject::Model, &parse_macro_input!(input as DeriveInput)).into()
}

/// Declares attention alone; the attributes are described in `docs/attention.md`.
#[proc_macro_derive(Attention, attributes(attention, target))]
pub fn derive_attention(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive(Subject::Attention, &parse_macro_input!(input as DeriveInput)).into()
}

fn derive(subject: Subject, input: &DeriveInput) -> TokenStream {
    let Attributes { declaration, places, facade } = tokens::read_as(subject, input);
    let owner = owner(&declaration.name, input.ident.span());
    let overriding = env::var("KERNWRIGHT_TARGETS").ok();
    let cubins = Cubins::of_this_process();
    let name = &declaration.name;
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let tables = Tables::of_package(&package);
    match declared(&declaration, overriding.as_deref(), &tables) {
        Ok((declared, all)) => {
            let text = declared.text();
            write_copies(&owner, &text, &all, cubins.as_ref());
            let texts = [&*text, &declared.targets_text()];
            let interface = interface(subject, Some(&declared));
            let constants = constants(input, &facade, (name, texts), &interface, &all, cubins.as_ref());
            // Cargo compiles the crate again when one of them changes.
            let files = tables.all.iter().filter_map(|(path, _)| path.to_str());
            quote!(#constants #(const _: &str = ::core::include_str!(#files);)*)
        }
        Err(problems) => {
            let errors = places.errors(&problems).map(|error| error.to_compile_error());
            // Without it, every use of what is declared would be an error too, and bury these.
            let stub = constants(input, &facade, (name, ["", ""]), &interface(subject, None), &[], None);
            quote!(#errors #stub)
        }
    }
}

/// The trait that the struct gets, and what it has there besides text.
fn interface(subject: Subject, declared: Option<&Declared>) -> (TokenStream, TokenStream) {
    match (subject, declared) {
        (Subject::Attention, Some(Declared::Attention(shape))) => {
            let element = format_ident!("{}", shape.dtype.name());
            let tensors = match shape.layout {
                Layout::Packed => quote!(Packed),
                Layout::Bshd | Layout::Bhsd => quote!(Separate),
            };
            (quote!(Attention), attention_types(&quote!(#element), &tensors))
        }
        (Subject::Attention, _) => (quote!(Attention), attention_types(&quote!(bf16), &quote!(Separate))),
        (Subject::Model, _) => (quote!(Model), TokenStream::new()),
    }
}

fn attention_types(element: &TokenStream, tensors: &TokenStream) -> TokenStream {
    quote! {
        type Element = __kernwright::attention::elements::#element;
        type Tensors = __kernwright::attention::#tensors;
    }
}

/// The constants, `SHAPE` and `TARGETS` as given. Text that several GPUs share is there once.
fn constants(
    input: &DeriveInput,
    facade: &TokenStream,
    (name, [shape, targets]): (&str, [&str; 2]),
    (interface, types): &(TokenStream, TokenStream),
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
            impl #impl_generics __kernwright::#interface for #ident #type_generics #where_clause {
                #types
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
fn write_copies(owner: &Owner, text: &str, all: &[Generated], cubins: Option<&Cubins>) {
    let is_editor = env::current_exe().is_ok_and(|exe| exe.to_string_lossy().contains("rust-analyzer"));
    let target_dir = Whereabouts::of_this_process().target_dir();
    if let (false, false, Some(target_dir)) = (is_editor, owner.package.is_empty(), target_dir) {
        let _ = write(&target_dir, owner, text, all, cubins);
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
