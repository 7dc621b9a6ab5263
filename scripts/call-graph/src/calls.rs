//! Who calls whom: a walk through every function with the declared types of what is in scope.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Expr, FnArg, ImplItem, Item, Local, Macro, Pat, Path, Signature, Token, TraitItem};

use crate::definitions::{Definitions, Function, name_of};
use crate::source::Source;
use crate::types::{Bounds, Named, bounds_of};

/// From file to file, with the names that are called.
pub type Edges = BTreeMap<(usize, usize), BTreeSet<String>>;

/// What the files of a crate call.
#[derive(Default)]
pub struct Calls {
    pub edges: Edges,
    /// How often a name was called whose receiver's type is not declared where it is seen.
    pub unresolved: BTreeMap<String, usize>,
}

/// The calls between the files of a crate.
pub fn calls_of(sources: &[Source], definitions: &Definitions) -> Calls {
    let mut calls = Calls::default();
    for (file, source) in sources.iter().enumerate() {
        let mut caller = Caller {
            file,
            definitions,
            own: None,
            bounds: Bounds::new(),
            scope: HashMap::new(),
            calls: &mut calls,
        };
        caller.items(&source.items);
    }
    calls
}

/// Methods of the standard library that crates have under the same names. They count only where the
/// receiver's type is known.
const OF_THE_LIBRARY: [&str; 34] = [
    "min", "max", "iter", "push", "take", "insert", "sum", "load", "store", "add", "count", "get",
    "remove", "find", "first", "last", "next", "position", "append", "len", "is_empty", "pop",
    "contains", "clear", "swap", "join", "map", "split", "entry", "extend", "write", "read",
    "flush", "lock",
];
/// Methods of the library that hand on what they are called on.
const SAME: [&str; 29] = [
    "clone",
    "as_ref",
    "as_mut",
    "iter",
    "iter_mut",
    "into_iter",
    "map_err",
    "ok",
    "copied",
    "cloned",
    "as_deref",
    "as_deref_mut",
    "borrow",
    "borrow_mut",
    "rev",
    "filter",
    "skip",
    "take",
    "take_while",
    "skip_while",
    "peekable",
    "ok_or",
    "ok_or_else",
    "or_else",
    "inspect",
    "chain",
    "drain",
    "to_vec",
    "step_by",
];
/// Those that hand on one of many.
const ONE_OF: [&str; 15] = [
    "get",
    "get_mut",
    "first",
    "first_mut",
    "last",
    "last_mut",
    "pop",
    "next",
    "next_back",
    "find",
    "pop_front",
    "pop_back",
    "min_by_key",
    "max_by_key",
    "peek",
];
/// Those of locks and cells, which lend what they hold.
const LENDS: [&str; 7] = ["lock", "read", "write", "get", "get_or_init", "upgrade", "try_lock"];
/// Those that call a closure with one of what they are called on.
const EACH: [&str; 27] = [
    "map",
    "filter",
    "for_each",
    "any",
    "all",
    "find",
    "position",
    "rposition",
    "filter_map",
    "flat_map",
    "find_map",
    "try_for_each",
    "take_while",
    "skip_while",
    "inspect",
    "is_some_and",
    "is_none_or",
    "and_then",
    "map_or",
    "map_or_else",
    "partition",
    "max_by_key",
    "min_by_key",
    "retain",
    "sort_by_key",
    "is_ok_and",
    "map_while",
];

struct Caller<'a> {
    file: usize,
    definitions: &'a Definitions,
    /// What `Self` is.
    own: Option<String>,
    bounds: Bounds,
    /// Bindings. One that hides another one takes its place until the function ends.
    scope: HashMap<String, Named>,
    calls: &'a mut Calls,
}

impl Caller<'_> {
    fn items(&mut self, items: &[Item]) {
        for item in items {
            self.own = None;
            self.bounds = Bounds::new();
            match item {
                Item::Fn(it) => self.function(&it.sig, |caller| caller.visit_block(&it.block)),
                Item::Impl(it) => {
                    self.own = name_of(&it.self_ty);
                    self.bounds = bounds_of(&it.generics, &Bounds::new());
                    for inner in &it.items {
                        if let ImplItem::Fn(method) = inner {
                            let body = &method.block;
                            self.function(&method.sig, |caller| caller.visit_block(body));
                        }
                    }
                }
                Item::Trait(it) => {
                    self.own = Some(it.ident.to_string());
                    for inner in &it.items {
                        if let TraitItem::Fn(method) = inner
                            && let Some(body) = &method.default
                        {
                            self.function(&method.sig, |caller| caller.visit_block(body));
                        }
                    }
                }
                Item::Mod(it) => {
                    self.items(it.content.as_ref().map_or(&[][..], |(_, items)| items));
                }
                other => self.visit_item(other),
            }
        }
    }

    fn function(&mut self, sig: &Signature, body: impl FnOnce(&mut Self)) {
        let outer = self.bounds.clone();
        self.bounds = bounds_of(&sig.generics, &outer);
        self.scope.clear();
        if let Some(own) = &self.own {
            self.scope.insert("self".to_string(), Named::Of(own.clone()));
        }
        for argument in &sig.inputs {
            if let FnArg::Typed(it) = argument {
                let named = self.declared(&it.ty);
                self.bind(&it.pat, named);
            }
        }
        body(self);
        self.bounds = outer;
    }

    fn declared(&self, ty: &syn::Type) -> Named {
        Named::of(ty, self.own.as_deref(), &self.bounds)
    }

    /// Binds what a pattern names.
    fn bind(&mut self, pat: &Pat, named: Named) {
        match pat {
            Pat::Ident(it) => drop(self.scope.insert(it.ident.to_string(), named)),
            Pat::Type(it) => {
                let named = self.declared(&it.ty);
                self.bind(&it.pat, named);
            }
            Pat::Reference(it) => self.bind(&it.pat, named),
            Pat::Paren(it) => self.bind(&it.pat, named),
            Pat::Tuple(it) => it.elems.iter().for_each(|pat| self.bind(pat, Named::Unknown)),
            Pat::TupleStruct(it) => {
                let is_of = |names: &[&str]| names.iter().any(|name| it.path.is_ident(name));
                let inner = if is_of(&["Some", "Ok"]) { named.unwrapped() } else { Named::Unknown };
                it.elems.iter().for_each(|pat| self.bind(pat, inner.clone()));
            }
            Pat::Struct(it) => {
                let of = it.path.segments.last().map(|last| last.ident.to_string());
                let of = if of.as_deref() == Some("Self") { self.own.clone() } else { of };
                for field in &it.fields {
                    let name = match &field.member {
                        syn::Member::Named(name) => name.to_string(),
                        syn::Member::Unnamed(index) => index.index.to_string(),
                    };
                    let of = of.as_deref().unwrap_or_default();
                    let named = self.definitions.field(of, &name);
                    self.bind(&field.pat, named);
                }
            }
            Pat::Slice(it) => {
                it.elems.iter().for_each(|pat| self.bind(pat, named.clone().element()))
            }
            Pat::Or(it) => it.cases.iter().for_each(|pat| self.bind(pat, named.clone())),
            _ => (),
        }
    }

    /// The declared type of an expression.
    fn type_of(&self, expr: &Expr) -> Named {
        match expr {
            Expr::Path(it) => match it.path.get_ident() {
                Some(name) => self.scope.get(&name.to_string()).cloned().unwrap_or(Named::Unknown),
                None => Named::Unknown,
            },
            Expr::Reference(it) => self.type_of(&it.expr),
            Expr::Paren(it) => self.type_of(&it.expr),
            Expr::Unary(it) if matches!(it.op, syn::UnOp::Deref(_)) => self.type_of(&it.expr),
            Expr::Try(it) => self.type_of(&it.expr).unwrapped(),
            Expr::Index(it) => self.type_of(&it.expr).element(),
            Expr::Cast(it) => self.declared(&it.ty),
            Expr::Lit(_) => Named::Of("literal".to_string()),
            Expr::Struct(it) => {
                let last = it.path.segments.last().map(|last| last.ident.to_string());
                match last.as_deref() {
                    Some("Self") => self.own.clone().map_or(Named::Unknown, Named::Of),
                    Some(name) => Named::Of(name.to_string()),
                    None => Named::Unknown,
                }
            }
            Expr::Field(it) => {
                let Named::Of(of) = self.type_of(&it.base) else { return Named::Unknown };
                let name = match &it.member {
                    syn::Member::Named(name) => name.to_string(),
                    syn::Member::Unnamed(index) => index.index.to_string(),
                };
                self.definitions.field(&of, &name)
            }
            Expr::Call(it) => match &*it.func {
                Expr::Path(path) => match self.called(&path.path).as_slice() {
                    [] => wrapped_by(&path.path, it.args.first().map(|first| self.type_of(first))),
                    several => common_return(several),
                },
                _ => Named::Unknown,
            },
            Expr::MethodCall(it) => {
                let receiver = self.type_of(&it.receiver);
                let name = it.method.to_string();
                match name.as_str() {
                    "unwrap" | "expect" | "unwrap_or_default" => receiver.unwrapped(),
                    name if SAME.contains(&name) => receiver,
                    name if ONE_OF.contains(&name) && matches!(receiver, Named::Many(_)) => {
                        Named::Wrapped(Box::new(receiver.element()))
                    }
                    name => match self.definitions.methods(&receiver, name).as_slice() {
                        [] if LENDS.contains(&name) => receiver,
                        several => common_return(several),
                    },
                }
            }
            _ => Named::Unknown,
        }
    }

    /// What the path of a call names.
    fn called(&self, path: &Path) -> Vec<&Function> {
        let Some(last) = path.segments.last() else { return Vec::new() };
        let name = last.ident.to_string();
        let before = path.segments.iter().rev().nth(1).map(|segment| segment.ident.to_string());
        match before {
            Some(own) if own == "Self" => {
                let own = self.own.clone().map_or(Named::Unknown, Named::Of);
                self.definitions.methods(&own, &name)
            }
            Some(of) if of.starts_with(char::is_uppercase) => {
                let of = self.bounds.get(&of).cloned().unwrap_or(of);
                self.definitions.methods(&Named::Of(of), &name)
            }
            _ => self.definitions.free(&name),
        }
    }

    /// A closure whose last argument is `each`.
    fn visit_closure(&mut self, closure: &syn::ExprClosure, each: &Named) {
        let last = closure.inputs.len().saturating_sub(1);
        for (index, pat) in closure.inputs.iter().enumerate() {
            self.bind(pat, if index == last { each.clone() } else { Named::Unknown });
        }
        self.visit_expr(&closure.body);
    }

    fn note(&mut self, name: &str, files: Vec<usize>) {
        for to in files {
            if to != self.file {
                self.calls.edges.entry((self.file, to)).or_default().insert(name.to_string());
            }
        }
    }
}

/// What an `Option` or `Result` is of that a call makes.
fn wrapped_by(path: &Path, argument: Option<Named>) -> Named {
    let wraps = path.is_ident("Some") || path.is_ident("Ok");
    let transparent = path.segments.last().is_some_and(|last| last.ident == "clone");
    match argument {
        Some(argument) if wraps => Named::Wrapped(Box::new(argument)),
        Some(argument) if transparent => argument,
        _ => Named::Unknown,
    }
}

/// What all of them return, if it is the same.
fn common_return(functions: &[&Function]) -> Named {
    match functions {
        [first, others @ ..] if others.iter().all(|other| other.returns == first.returns) => {
            first.returns.clone()
        }
        _ => Named::Unknown,
    }
}

impl<'ast> Visit<'ast> for Caller<'_> {
    fn visit_local(&mut self, local: &'ast Local) {
        visit::visit_local(self, local);
        let named = local.init.as_ref().map_or(Named::Unknown, |init| self.type_of(&init.expr));
        self.bind(&local.pat, named);
    }

    fn visit_expr_let(&mut self, it: &'ast syn::ExprLet) {
        visit::visit_expr_let(self, it);
        let named = self.type_of(&it.expr);
        self.bind(&it.pat, named);
    }

    fn visit_expr_for_loop(&mut self, it: &'ast syn::ExprForLoop) {
        let named = self.type_of(&it.expr).element();
        self.bind(&it.pat, named);
        visit::visit_expr_for_loop(self, it);
    }

    fn visit_expr_match(&mut self, it: &'ast syn::ExprMatch) {
        let named = self.type_of(&it.expr);
        self.visit_expr(&it.expr);
        for arm in &it.arms {
            self.bind(&arm.pat, named.clone());
            self.visit_arm(arm);
        }
    }

    fn visit_expr_closure(&mut self, it: &'ast syn::ExprClosure) {
        self.visit_closure(it, &Named::Unknown);
    }

    fn visit_expr_method_call(&mut self, it: &'ast syn::ExprMethodCall) {
        let receiver = self.type_of(&it.receiver);
        let name = it.method.to_string();
        let is_foreign = receiver == Named::Unknown && OF_THE_LIBRARY.contains(&name.as_str());
        let mut called = self.definitions.methods(&receiver, &name);
        called.retain(|_| !is_foreign);
        let files: Vec<usize> = called.into_iter().map(|function| function.file).collect();
        if receiver == Named::Unknown && !files.is_empty() {
            *self.calls.unresolved.entry(name.clone()).or_default() += 1;
        }
        self.note(&name, files);
        self.visit_expr(&it.receiver);
        let each = match receiver {
            Named::Many(inner) | Named::Wrapped(inner) if EACH.contains(&name.as_str()) => *inner,
            _ => Named::Unknown,
        };
        for argument in &it.args {
            if let Expr::Closure(closure) = argument {
                self.visit_closure(closure, &each);
            } else {
                self.visit_expr(argument);
            }
        }
    }

    /// A call, or a function that is handed on.
    fn visit_expr_path(&mut self, it: &'ast syn::ExprPath) {
        let is_bound =
            it.path.get_ident().is_some_and(|name| self.scope.contains_key(&name.to_string()));
        if !is_bound && let Some(last) = it.path.segments.last() {
            let files = self.called(&it.path).into_iter().map(|function| function.file).collect();
            self.note(&last.ident.to_string(), files);
        }
        visit::visit_expr_path(self, it);
    }

    /// The arguments of macros that take expressions.
    fn visit_macro(&mut self, it: &'ast Macro) {
        let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
        if let Ok(arguments) = it.parse_body_with(parser) {
            // The borrow of the tree ends with this call: it is walked by a visitor of its own.
            walk_arguments(self, &arguments);
        }
    }
}

fn walk_arguments(caller: &mut Caller<'_>, arguments: &Punctuated<Expr, Token![,]>) {
    arguments.iter().for_each(|argument| Visit::visit_expr(caller, argument));
}
