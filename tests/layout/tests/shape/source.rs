//! From source files to functions and types.

use std::fs;
use std::path::{Path, PathBuf};

use ike_test_layout::is_test_condition;
use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{FnArg, ImplItem, Item, ReturnType, Stmt, TraitItem, Type, Visibility};

use crate::silent::Silent;

/// A function with a body.
pub(crate) struct Function {
    pub(crate) place: Place,
    pub(crate) name: String,
    /// The type whose `impl` block has it; the name of the trait for a method that a trait provides.
    pub(crate) of: Option<String>,
    /// It implements a method of a trait, or a trait provides it.
    pub(crate) of_trait: bool,
    /// The type of the first argument, without references.
    pub(crate) first: Option<String>,
    /// The first argument is `&mut`, or `self` that is.
    pub(crate) changes_first: bool,
    pub(crate) parameters: usize,
    /// The same with the members of tuples in place of each tuple.
    pub(crate) members: usize,
    pub(crate) lines: usize,
    pub(crate) returns: TokenStream,
    pub(crate) silent: Silent,
}

/// A structure or an enum.
pub(crate) struct Definition {
    pub(crate) place: Place,
    pub(crate) name: String,
    /// Its fields, or those of its variant with most. A tuple counts with its members.
    pub(crate) fields: usize,
    /// The scopes of its fields that are not private: the module that sees each. The type's own scope may be smaller.
    pub(crate) seen_by: Vec<Vec<String>>,
}

/// Where an item stands.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Relative to the crate's `src`.
    pub(crate) file: PathBuf,
    pub(crate) module: Vec<String>,
    pub(crate) line: usize,
}

impl Place {
    /// The module whose files share a folder with this one. A file beside `lib.rs` is a folder of its own.
    pub(crate) fn folder(&self) -> Vec<String> {
        let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.map_or_else(|| self.file.with_extension(""), Path::to_path_buf);
        folder.iter().map(|part| part.to_string_lossy().into_owned()).collect()
    }
}

/// What the sources of one crate define. Code for tests alone is left out.
#[derive(Default)]
pub(crate) struct Sources {
    pub(crate) functions: Vec<Function>,
    pub(crate) types: Vec<Definition>,
}

impl Sources {
    /// Reads the crate whose root is `src/lib.rs` or `src/main.rs`.
    pub(crate) fn read(src: &Path) -> Self {
        let mut sources = Self::default();
        for root in ["lib.rs", "main.rs"].into_iter().filter(|root| src.join(root).exists()) {
            let place = Place { file: root.into(), module: Vec::new(), line: 1 };
            sources.file(src, &place, Path::new(""));
        }
        sources
    }

    fn file(&mut self, src: &Path, place: &Place, folder: &Path) {
        let path = src.join(&place.file);
        let text =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file =
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if !is_for_tests(&file.attrs) {
            self.items(src, &file.items, place, folder);
        }
    }

    fn items(&mut self, src: &Path, items: &[Item], place: &Place, folder: &Path) {
        for item in items {
            if is_for_tests(attributes(item)) {
                continue;
            }
            let at = |spanned: &dyn Spanned| Place {
                line: spanned.span().start().line,
                ..place.clone()
            };
            match item {
                Item::Mod(module) => {
                    let name = module.ident.to_string();
                    let name = name.trim_start_matches("r#");
                    let folder = folder.join(name);
                    let mut inner = place.clone();
                    inner.module.push(name.to_owned());
                    if let Some((_, items)) = &module.content {
                        self.items(src, items, &inner, &folder);
                        continue;
                    }
                    inner.file = folder.with_extension("rs");
                    if !src.join(&inner.file).exists() {
                        inner.file = folder.join("mod.rs");
                    }
                    self.file(src, &inner, &folder);
                    continue;
                }
                Item::Fn(function) => {
                    let here = at(&function.sig);
                    self.function(src, here, None, &function.sig, &function.block, folder);
                }
                Item::Impl(block) => {
                    let of = (type_name(&block.self_ty), block.trait_.is_some());
                    for item in &block.items {
                        let ImplItem::Fn(method) = item else { continue };
                        if is_for_tests(&method.attrs) {
                            continue;
                        }
                        let here = at(&method.sig);
                        self.function(src, here, Some(&of), &method.sig, &method.block, folder);
                    }
                }
                Item::Trait(block) => {
                    let of = (Some(block.ident.to_string()), true);
                    for item in &block.items {
                        let TraitItem::Fn(method) = item else { continue };
                        if let Some(body) = &method.default {
                            let here = at(&method.sig);
                            self.function(src, here, Some(&of), &method.sig, body, folder);
                        }
                    }
                }
                Item::Struct(item) => {
                    let name = item.ident.to_string();
                    let here = at(&item.ident);
                    let seen_by = item.fields.iter().filter(|field| !is_for_tests(&field.attrs));
                    let seen_by = seen_by.filter_map(|field| {
                        let field = scope(&field.vis, &here.module)?;
                        // The smaller of the two scopes is the longer path.
                        let of = scope(&item.vis, &here.module).unwrap_or(here.module.clone());
                        Some(if of.len() > field.len() { of } else { field })
                    });
                    let seen_by = seen_by.collect();
                    let fields = fields(&item.fields);
                    self.types.push(Definition { place: here, name, fields, seen_by });
                }
                Item::Enum(item) => {
                    let fields = item.variants.iter().map(|variant| fields(&variant.fields));
                    self.types.push(Definition {
                        place: at(&item.ident),
                        name: item.ident.to_string(),
                        fields: fields.max().unwrap_or_default(),
                        seen_by: Vec::new(),
                    });
                }
                _ => {}
            }
        }
    }

    fn function(
        &mut self,
        src: &Path,
        place: Place,
        of: Option<&(Option<String>, bool)>,
        signature: &syn::Signature,
        body: &syn::Block,
        folder: &Path,
    ) {
        let nested = body.stmts.iter().filter_map(|statement| match statement {
            Stmt::Item(item) => Some(item.clone()),
            _ => None,
        });
        let nested: Vec<_> = nested.collect();
        let statements = body.stmts.iter().filter(|statement| !matches!(statement, Stmt::Item(_)));
        let tokens = statements.map(ToTokens::to_token_stream).collect();
        let first = signature.inputs.first();
        let span = |spanned: &dyn Spanned| spanned.span();
        self.functions.push(Function {
            name: signature.ident.to_string(),
            of: of.and_then(|(name, _)| name.clone()),
            of_trait: of.is_some_and(|(_, of_trait)| *of_trait),
            first: first.and_then(|argument| match argument {
                FnArg::Receiver(_) => of.and_then(|(name, _)| name.clone()),
                FnArg::Typed(typed) => type_name(&typed.ty),
            }),
            changes_first: first.is_some_and(|argument| {
                let argument = argument.to_token_stream().to_string();
                argument.starts_with("& mut self")
                    || argument.starts_with("&mut self")
                    || matches!(first, Some(FnArg::Typed(typed))
                        if matches!(&*typed.ty, Type::Reference(it) if it.mutability.is_some()))
            }),
            parameters: signature.inputs.len(),
            members: signature.inputs.iter().map(argument_members).sum(),
            lines: span(body).end().line + 1 - place.line,
            returns: match &signature.output {
                ReturnType::Default => TokenStream::new(),
                ReturnType::Type(_, output) => output.to_token_stream(),
            },
            silent: Silent::of(tokens),
            place: place.clone(),
        });
        self.items(src, &nested, &place, folder);
    }
}

fn argument_members(argument: &FnArg) -> usize {
    match argument {
        FnArg::Receiver(_) => 1,
        FnArg::Typed(typed) => members(&typed.ty),
    }
}

/// The members of a tuple and of the tuples in it, of a reference to one and of a slice of them; 1 for another type.
fn members(of: &Type) -> usize {
    match of {
        Type::Tuple(tuple) => tuple.elems.iter().map(members).sum::<usize>().max(1),
        Type::Reference(reference) => members(&reference.elem),
        Type::Paren(inner) => members(&inner.elem),
        Type::Slice(slice) => members(&slice.elem),
        _ => 1,
    }
}

fn fields(fields: &syn::Fields) -> usize {
    let fields = fields.iter().filter(|field| !is_for_tests(&field.attrs));
    fields.map(|field| members(&field.ty)).sum()
}

/// The last name of a type's path, without references.
fn type_name(of: &Type) -> Option<String> {
    match of {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
        Type::Reference(reference) => type_name(&reference.elem),
        Type::Paren(inner) => type_name(&inner.elem),
        _ => None,
    }
}

/// The module that sees an item of `module`; none if it is private.
fn scope(visibility: &Visibility, module: &[String]) -> Option<Vec<String>> {
    let path = match visibility {
        Visibility::Public(_) => return Some(Vec::new()),
        Visibility::Restricted(restricted) => restricted.path.segments.iter(),
        Visibility::Inherited => return None,
    };
    let mut scope = module.to_vec();
    for part in path {
        match part.ident.to_string().as_str() {
            "self" => {}
            "super" => drop(scope.pop()),
            "crate" => scope.clear(),
            name => scope.push(name.to_owned()),
        }
    }
    Some(scope)
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            is_test_condition(list.tokens.clone())
        }
        syn::Meta::Path(path) => path.is_ident("test"),
        _ => false,
    })
}

fn attributes(item: &Item) -> &[syn::Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}
