//! Who calls whom: a walk through every function with the declared types of what is in scope.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proc_macro2::TokenStream;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Block, Expr, FnArg, ImplItem, Item, Local, Macro, Pat, Path, Signature, Stmt, Token};
use syn::{TraitItem, parse::Parser as _};

use crate::definitions::{Definitions, Function};
use crate::library::{self, Handed};
use crate::macros::{self, Macros, Named as Mentioned};
use crate::modules::{Imports, ModuleId};
use crate::source::Source;
use crate::types::{Bounds, Named, Place, bounds_of};

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
    let macros = Macros::of(sources);
    for (file, source) in sources.iter().enumerate() {
        let mut caller = Caller {
            file,
            module: definitions.modules.at(&source.module),
            definitions,
            macros: &macros,
            own: None,
            bounds: Bounds::new(),
            imports: Imports::default(),
            scope: HashMap::new(),
            calls: &mut calls,
        };
        caller.items(&source.items);
    }
    calls
}

struct Caller<'a> {
    file: usize,
    module: ModuleId,
    definitions: &'a Definitions,
    macros: &'a Macros,
    /// What `Self` is.
    own: Option<String>,
    bounds: Bounds,
    /// What functions import for themselves.
    imports: Imports,
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
                Item::Fn(it) => self.function(&it.sig, &it.block),
                Item::Impl(it) => {
                    (self.bounds, self.own) = self.definitions.implementor(self.module, it);
                    for inner in &it.items {
                        match inner {
                            ImplItem::Fn(method) => self.function(&method.sig, &method.block),
                            other => self.visit_impl_item(other),
                        }
                    }
                }
                Item::Trait(it) => {
                    self.own =
                        Some(self.definitions.modules.key(self.module, &it.ident.to_string()));
                    for inner in &it.items {
                        if let TraitItem::Fn(method) = inner
                            && let Some(body) = &method.default
                        {
                            self.function(&method.sig, body);
                        }
                    }
                }
                Item::Mod(it) => {
                    if let Some((_, inner)) = &it.content {
                        let outer = self.module;
                        self.module = self.definitions.modules.child(outer, &it.ident.to_string());
                        self.items(inner);
                        self.module = outer;
                    }
                }
                Item::Macro(it) => self.item_macro(it),
                other => self.visit_item(other),
            }
        }
    }

    fn function(&mut self, sig: &Signature, body: &Block) {
        let outer = self.bounds.clone();
        self.bounds = bounds_of(&sig.generics, self.place());
        self.scope.clear();
        self.imports = Imports::default();
        if let Some(own) = &self.own {
            self.scope.insert("self".to_string(), Named::Of(own.clone()));
        }
        for argument in &sig.inputs {
            if let FnArg::Typed(it) = argument {
                let named = self.declared(&it.ty);
                self.bind(&it.pat, named);
            }
        }
        self.visit_block(body);
        self.bounds = outer;
    }

    fn place(&self) -> Place<'_> {
        Place {
            modules: &self.definitions.modules,
            module: self.module,
            own: self.own.as_deref(),
            bounds: &self.bounds,
            imports: &self.imports,
        }
    }

    fn declared(&self, ty: &syn::Type) -> Named {
        Named::of(ty, self.place())
    }

    /// The key of what a path names, if it is of the crate.
    fn key(&self, path: &Path) -> Option<String> {
        let mut segments: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments[0] == "Self" {
            segments[0] = self.own.clone()?;
            return Some(segments.join("::"));
        }
        self.definitions.modules.resolve(self.module, &segments, &self.imports)
    }

    /// Binds what a pattern names.
    fn bind(&mut self, pat: &Pat, named: Named) {
        match pat {
            // A constant or a variant has the look of a binding.
            Pat::Ident(it) if it.ident.to_string().starts_with(char::is_uppercase) => (),
            Pat::Ident(it) => {
                if let Some((_, inner)) = &it.subpat {
                    self.bind(inner, named.clone());
                }
                drop(self.scope.insert(it.ident.to_string(), named));
            }
            Pat::Type(it) => {
                let named = self.declared(&it.ty);
                self.bind(&it.pat, named);
            }
            Pat::Reference(it) => self.bind(&it.pat, named),
            Pat::Paren(it) => self.bind(&it.pat, named),
            Pat::Tuple(it) => {
                for (at, pat) in it.elems.iter().enumerate() {
                    let part = self.definitions.field(&named, &at.to_string());
                    self.bind(pat, part);
                }
            }
            Pat::TupleStruct(it) => {
                let unwraps = ["Some", "Ok"].iter().any(|name| it.path.is_ident(name));
                let of = self.key(&it.path).map_or(Named::Unknown, Named::Of);
                for (at, pat) in it.elems.iter().enumerate() {
                    let part = match unwraps {
                        true => named.clone().unwrapped(),
                        false => self.definitions.field(&of, &at.to_string()),
                    };
                    self.bind(pat, part);
                }
            }
            Pat::Struct(it) => {
                let of = self.key(&it.path).map_or(Named::Unknown, Named::Of);
                for field in &it.fields {
                    let part = self.definitions.field(&of, &member(&field.member));
                    self.bind(&field.pat, part);
                }
            }
            Pat::Slice(it) => {
                it.elems.iter().for_each(|pat| self.bind(pat, named.clone().element()));
            }
            Pat::Rest(_) | Pat::Wild(_) => (),
            Pat::Or(it) => it.cases.iter().for_each(|pat| self.bind(pat, named.clone())),
            _ => (),
        }
    }

    /// The declared type of an expression.
    fn type_of(&self, expr: &Expr) -> Named {
        match expr {
            Expr::Path(it) => self.type_of_path(it),
            Expr::Reference(it) => self.type_of(&it.expr),
            Expr::Paren(it) => self.type_of(&it.expr),
            Expr::Group(it) => self.type_of(&it.expr),
            Expr::Unary(it) => self.type_of(&it.expr),
            Expr::Try(it) => self.type_of(&it.expr).unwrapped(),
            Expr::Index(it) if matches!(*it.index, Expr::Range(_)) => self.type_of(&it.expr),
            Expr::Index(it) => self.type_of(&it.expr).value(),
            Expr::Cast(it) => self.declared(&it.ty),
            Expr::Lit(_) | Expr::Assign(_) => Named::literal(),
            Expr::Range(_) => Named::many(Named::literal()),
            // Of numbers, or the same type again.
            Expr::Binary(it) => match self.type_of(&it.left) {
                Named::Unknown => Named::literal(),
                known => known,
            },
            Expr::Array(it) => {
                Named::many(it.elems.first().map_or(Named::Unknown, |first| self.type_of(first)))
            }
            Expr::Repeat(it) => Named::many(self.type_of(&it.expr)),
            Expr::Tuple(it) => Named::Tuple(it.elems.iter().map(|it| self.type_of(it)).collect()),
            Expr::Struct(it) => {
                let made = |key: String| self.definitions.made(&key);
                self.key(&it.path).map_or_else(|| foreign(&it.path), made)
            }
            Expr::Field(it) => self.definitions.field(&self.type_of(&it.base), &member(&it.member)),
            Expr::Block(it) => self.type_of_block(&it.block),
            Expr::Unsafe(it) => self.type_of_block(&it.block),
            Expr::If(it) => {
                let first = self.type_of_block(&it.then_branch);
                match (first, &it.else_branch) {
                    (Named::Unknown, Some((_, other))) => self.type_of(other),
                    (first, _) => first,
                }
            }
            Expr::Match(it) => {
                let arms = it.arms.iter().map(|arm| self.type_of(&arm.body));
                arms.into_iter().find(|named| *named != Named::Unknown).unwrap_or(Named::Unknown)
            }
            Expr::Closure(it) => Named::Closure(Vec::new(), Box::new(self.type_of(&it.body))),
            Expr::Macro(it) => self.type_of_macro(&it.mac),
            Expr::Call(it) => self.type_of_call(it),
            Expr::MethodCall(it) => self.type_of_method(it),
            _ => Named::Unknown,
        }
    }

    fn type_of_path(&self, it: &syn::ExprPath) -> Named {
        let local = it.path.get_ident().and_then(|name| self.scope.get(&name.to_string()));
        if let Some(local) = local {
            return local.clone();
        }
        if let Some(value) = self.key(&it.path).and_then(|key| self.definitions.value(&key)) {
            return value;
        }
        match self.called(it).as_slice() {
            // A function that is handed on.
            [function, ..] => Named::Closure(Vec::new(), Box::new(function.returns.clone())),
            [] if it.path.segments.last().is_some_and(|it| it.ident == "None") => Named::Unknown,
            // A constant of another crate, mostly a number.
            [] if it.path.segments.len() > 1 => Named::literal(),
            [] => Named::Unknown,
        }
    }

    fn type_of_block(&self, block: &Block) -> Named {
        match block.stmts.last() {
            Some(Stmt::Expr(it, None)) => self.type_of(it),
            Some(Stmt::Macro(it)) => self.type_of_macro(&it.mac),
            _ => Named::Unknown,
        }
    }

    fn type_of_macro(&self, it: &Macro) -> Named {
        if !it.path.is_ident("vec") {
            let is_text = it.path.is_ident("format") || it.path.is_ident("matches");
            return if is_text { Named::literal() } else { Named::Unknown };
        }
        let first = match it.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated) {
            Ok(list) => list.first().map(|first| self.type_of(first)),
            Err(_) => repeated(it.tokens.clone()).map(|it| self.type_of(&it)),
        };
        Named::many(first.unwrap_or(Named::Unknown))
    }

    fn type_of_call(&self, it: &syn::ExprCall) -> Named {
        let Expr::Path(path) = &*it.func else {
            let Named::Closure(_, returns) = self.type_of(&it.func) else { return Named::Unknown };
            return *returns;
        };
        let argument = || it.args.first().map_or(Named::Unknown, |first| self.type_of(first));
        if let Some(value) = self.key(&path.path).and_then(|key| self.definitions.value(&key)) {
            return value;
        }
        let local = path.path.get_ident().and_then(|name| self.scope.get(&name.to_string()));
        if let Some(Named::Closure(_, returns)) = local {
            return (**returns).clone();
        }
        match self.called(path).as_slice() {
            [] => match library::handed_by_path(&path.path) {
                Handed::Wrapped => Named::wrapped(argument()),
                Handed::Same => argument(),
                // What another crate's constructor makes, or a derived one.
                Handed::Unknown => self.constructed(&path.path),
            },
            several => common_return(several),
        }
    }

    /// What `Type::new()` makes if the crate does not define it.
    fn constructed(&self, path: &Path) -> Named {
        let mut path = path.clone();
        let name = path.segments.pop().map(|last| last.into_value().ident.to_string());
        if let Some(syn::punctuated::Pair::Punctuated(last, _)) = path.segments.pop() {
            path.segments.push_value(last);
        }
        let is_type = path
            .segments
            .last()
            .is_some_and(|last| last.ident.to_string().starts_with(char::is_uppercase));
        let makes = ["new", "default", "from", "with_capacity", "from_fn"];
        match name {
            Some(name) if is_type && makes.contains(&name.as_str()) => {
                self.declared(&syn::Type::Path(syn::TypePath { qself: None, path }))
            }
            _ if is_type => Named::literal(),
            _ => Named::Unknown,
        }
    }

    fn type_of_method(&self, it: &syn::ExprMethodCall) -> Named {
        let receiver = self.type_of(&it.receiver);
        let name = it.method.to_string();
        if receiver != Named::Unknown {
            let called = self.definitions.methods(&receiver, &name);
            if !called.is_empty() {
                return common_return(&called);
            }
        }
        let argument = |at: usize| it.args.get(at).map_or(Named::Unknown, |arg| self.type_of(arg));
        let turbofish = it.turbofish.as_ref().and_then(|list| match list.args.first() {
            Some(syn::GenericArgument::Type(ty)) => Some(self.declared(ty)),
            _ => None,
        });
        match library::handed_by(&receiver, &name, argument, turbofish) {
            Some(named) => named,
            None if receiver == Named::Unknown && !library::has(&name) => {
                common_return(&self.definitions.methods(&receiver, &name))
            }
            None => Named::Unknown,
        }
    }

    /// What the path of a call names.
    fn called(&self, it: &syn::ExprPath) -> Vec<&Function> {
        let Some(last) = it.path.segments.last() else { return Vec::new() };
        let name = last.ident.to_string();
        if let Some(qself) = &it.qself {
            return self.definitions.methods(&self.declared(&qself.ty), &name);
        }
        let first = it.path.segments[0].ident.to_string();
        if it.path.segments.len() == 2
            && let Some(bound) = self.bounds.get(&first)
        {
            return self.definitions.methods(bound, &name);
        }
        let Some(key) = self.key(&it.path) else { return Vec::new() };
        if let Some(function) = self.definitions.free(&key) {
            return vec![function];
        }
        let Some((owner, name)) = key.rsplit_once("::") else { return Vec::new() };
        let owner = match self.definitions.modules.alias(owner) {
            Some((module, ty)) => Named::of(ty, Place { module: *module, ..self.place() }),
            None => Named::Of(owner.to_string()),
        };
        self.definitions.methods(&owner, name)
    }

    /// A closure that is called with `takes`.
    fn visit_closure(&mut self, closure: &syn::ExprClosure, takes: &[Named]) {
        for (at, pat) in closure.inputs.iter().enumerate() {
            self.bind(pat, takes.get(at).cloned().unwrap_or(Named::Unknown));
        }
        self.visit_expr(&closure.body);
    }

    /// The arguments of a call, where each may be a closure that takes what is declared.
    fn arguments(&mut self, arguments: &Punctuated<Expr, Token![,]>, takes: &[Named]) {
        for (at, argument) in arguments.iter().enumerate() {
            let taken = match takes.get(at) {
                Some(Named::Closure(taken, _)) => taken.as_slice(),
                _ => &[],
            };
            match argument {
                Expr::Closure(closure) => self.visit_closure(closure, taken),
                Expr::Reference(it) if matches!(*it.expr, Expr::Closure(_)) => {
                    let Expr::Closure(closure) = &*it.expr else { continue };
                    self.visit_closure(closure, taken);
                }
                other => self.visit_expr(other),
            }
        }
    }

    fn note(&mut self, name: &str, files: Vec<usize>) {
        for to in files {
            if to != self.file {
                self.calls.edges.entry((self.file, to)).or_default().insert(name.to_string());
            }
        }
    }

    /// A macro's rules, whose calls count where they are written; or items made by rules, which
    /// call what they name of the types that they are given.
    fn item_macro(&mut self, it: &syn::ItemMacro) {
        if let Some(name) = &it.ident {
            if !self.macros.makes_items(&name.to_string()) {
                self.tokens(it.mac.tokens.clone());
            }
            return;
        }
        let name = it.mac.path.segments.last().map(|last| last.ident.to_string());
        let called = self.macros.names_in(&name.unwrap_or_default());
        for Mentioned { path, .. } in macros::mentioned(it.mac.tokens.clone()) {
            let segments: Vec<String> = path.split("::").map(str::to_string).collect();
            let key = self.definitions.modules.resolve(self.module, &segments, &self.imports);
            let Some(key) = key else { continue };
            for name in &called {
                let methods = self.definitions.methods(&Named::Of(key.clone()), name);
                self.note(name, methods.into_iter().map(|function| function.file).collect());
            }
        }
    }

    /// Calls in a macro's tokens that are no list of expressions: `path(` by what it names,
    /// `.name(` by every method of the name.
    fn tokens(&mut self, tokens: TokenStream) {
        for Mentioned { path, kind } in macros::mentioned(tokens) {
            match kind {
                macros::Kind::Method if library::has(&path) => (),
                macros::Kind::Method => {
                    let called = self.definitions.methods(&Named::Unknown, &path);
                    self.note(&path, called.into_iter().map(|function| function.file).collect());
                }
                macros::Kind::Call => {
                    let Ok(it) = syn::parse_str::<syn::ExprPath>(&path) else { continue };
                    let files =
                        self.called(&it).into_iter().map(|function| function.file).collect();
                    self.note(path.rsplit("::").next().unwrap_or_default(), files);
                }
                macros::Kind::Other => (),
            }
        }
    }
}

fn member(member: &syn::Member) -> String {
    match member {
        syn::Member::Named(name) => name.to_string(),
        syn::Member::Unnamed(index) => index.index.to_string(),
    }
}

fn foreign(path: &Path) -> Named {
    let last = path.segments.last().map(|last| last.ident.to_string());
    Named::Of(format!("::{}", last.unwrap_or_default()))
}

/// `value` of `vec![value; count]`.
fn repeated(tokens: TokenStream) -> Option<Expr> {
    let parser = |input: syn::parse::ParseStream<'_>| {
        let value: Expr = input.parse()?;
        input.parse::<Token![;]>()?;
        input.parse::<Expr>()?;
        Ok(value)
    };
    parser.parse2(tokens).ok()
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

    fn visit_item_use(&mut self, it: &'ast syn::ItemUse) {
        self.imports.add(&it.tree);
    }

    /// A function within a function sees none of its bindings.
    fn visit_item_fn(&mut self, it: &'ast syn::ItemFn) {
        let (scope, bounds) = (self.scope.clone(), self.bounds.clone());
        let imports = self.imports.clone();
        self.function(&it.sig, &it.block);
        (self.scope, self.bounds, self.imports) = (scope, bounds, imports);
    }

    fn visit_expr_let(&mut self, it: &'ast syn::ExprLet) {
        visit::visit_expr_let(self, it);
        let named = self.type_of(&it.expr);
        self.bind(&it.pat, named);
    }

    fn visit_expr_for_loop(&mut self, it: &'ast syn::ExprForLoop) {
        self.visit_expr(&it.expr);
        let named = self.type_of(&it.expr).element();
        self.bind(&it.pat, named);
        self.visit_block(&it.body);
    }

    fn visit_expr_match(&mut self, it: &'ast syn::ExprMatch) {
        self.visit_expr(&it.expr);
        let named = self.type_of(&it.expr);
        for arm in &it.arms {
            self.bind(&arm.pat, named.clone());
            self.visit_arm(arm);
        }
    }

    fn visit_expr_closure(&mut self, it: &'ast syn::ExprClosure) {
        self.visit_closure(it, &[]);
    }

    fn visit_expr_call(&mut self, it: &'ast syn::ExprCall) {
        self.visit_expr(&it.func);
        let takes = match &*it.func {
            Expr::Path(path) => self.called(path).first().map(|function| function.takes.clone()),
            _ => None,
        };
        self.arguments(&it.args, &takes.unwrap_or_default());
    }

    fn visit_expr_method_call(&mut self, it: &'ast syn::ExprMethodCall) {
        self.visit_expr(&it.receiver);
        let receiver = self.type_of(&it.receiver);
        let name = it.method.to_string();
        let is_foreign = receiver == Named::Unknown && library::has(&name);
        let mut called = self.definitions.methods(&receiver, &name);
        called.retain(|_| !is_foreign);
        let takes = called.first().map(|function| function.takes.clone());
        let files: Vec<usize> = called.into_iter().map(|function| function.file).collect();
        if receiver == Named::Unknown && !files.is_empty() {
            *self.calls.unresolved.entry(name.clone()).or_default() += 1;
        }
        self.note(&name, files);
        let first = it.args.first().map_or(Named::Unknown, |first| self.type_of(first));
        let takes = takes.unwrap_or_else(|| library::taken_by(&receiver, &name, &first));
        self.arguments(&it.args, &takes);
    }

    /// A call, or a function that is handed on.
    fn visit_expr_path(&mut self, it: &'ast syn::ExprPath) {
        let is_bound =
            it.path.get_ident().is_some_and(|name| self.scope.contains_key(&name.to_string()));
        if !is_bound && let Some(last) = it.path.segments.last() {
            let files = self.called(it).into_iter().map(|function| function.file).collect();
            self.note(&last.ident.to_string(), files);
        }
        visit::visit_expr_path(self, it);
    }

    /// The arguments of macros that take expressions, or what looks like a call in others.
    fn visit_macro(&mut self, it: &'ast Macro) {
        let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
        match it.parse_body_with(parser) {
            // The borrow of the tree ends with this call: it is walked by a visitor of its own.
            Ok(arguments) => walk_arguments(self, &arguments),
            Err(_) => match repeated(it.tokens.clone()) {
                Some(value) => Visit::visit_expr(self, &value),
                None => self.tokens(it.tokens.clone()),
            },
        }
    }
}

fn walk_arguments(caller: &mut Caller<'_>, arguments: &Punctuated<Expr, Token![,]>) {
    arguments.iter().for_each(|argument| Visit::visit_expr(caller, argument));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::crate_of;

    /// Edges as text, by the files' names.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let sources = crate_of(files);
        let calls = calls_of(&sources, &Definitions::of(&sources));
        assert!(calls.unresolved.is_empty(), "{:?}", calls.unresolved);
        let names = |it: &BTreeSet<String>| it.iter().cloned().collect::<Vec<_>>().join(" ");
        let shown = calls.edges.iter().map(|((from, to), called)| {
            format!("{} -> {}: {}", sources[*from].name, sources[*to].name, names(called))
        });
        shown.collect()
    }

    const SHAPES: [(&str, &str); 3] = [
        ("shape.rs", "pub trait Shape { fn area(&self) -> u32; fn twice(&self) {} }"),
        (
            "square.rs",
            "use crate::shape::Shape; pub struct Square; impl Square { pub fn new() -> Square \
             { Square } } impl Shape for Square { fn area(&self) -> u32 { 1 } }",
        ),
        (
            "circle.rs",
            "pub struct Circle; impl super::shape::Shape for Circle { fn area(&self) -> u32 \
             { 2 } }",
        ),
    ];

    fn with_shapes(text: &str) -> Vec<String> {
        let files: Vec<(&str, &str)> = SHAPES.into_iter().chain([("user.rs", text)]).collect();
        edges(&files)
    }

    #[test]
    fn a_trait_object_is_a_call_of_the_trait_only() {
        let found = with_shapes("use crate::shape::*; fn a(it: &dyn Shape) { it.area(); }");
        assert_eq!(found, ["user.rs -> shape.rs: area"]);
        let found = with_shapes("fn a<S>(s: Vec<S>) where S: crate::shape::Shape { s[0].area(); }");
        assert_eq!(found, ["user.rs -> shape.rs: area"]);
        let found = with_shapes(
            "struct User<S: Copy + crate::shape::Shape> { s: Option<Box<S>> } \
             impl<S: Copy + crate::shape::Shape> User<S> { fn a(&self) { \
             if let Some(s) = &self.s { s.area(); S::area(s); } } }",
        );
        assert_eq!(found, ["user.rs -> shape.rs: area"]);
    }

    #[test]
    fn a_type_is_a_call_of_its_own_method_or_of_the_provided_one() {
        let found = with_shapes(
            "use crate::square::Square; fn a() { let it = Square::new(); it.area(); it.twice(); }",
        );
        assert_eq!(found, ["user.rs -> shape.rs: twice", "user.rs -> square.rs: area new"]);
    }

    #[test]
    fn a_function_is_resolved_by_its_path() {
        let found = edges(&[
            ("a.rs", "pub fn go() {} pub struct Entry; impl Entry { pub fn get(&self) {} }"),
            ("b.rs", "pub fn go() {} pub struct Entry; impl Entry { pub fn get(&self) {} }"),
            ("c.rs", "use crate::a::{self, Entry}; fn c(it: &Entry) { it.get(); a::go(); }"),
            ("d.rs", "fn go() {} fn d() { go(); let x = std::iter::empty(); }"),
        ]);
        assert_eq!(found, ["c.rs -> a.rs: get go"]);
    }

    #[test]
    fn types_pass_through_closures_tuples_variants_and_collections() {
        let lib = "pub struct A; impl A { pub fn a(&self) -> Option<B> { None } } \
                   pub struct B; impl B { pub fn b(&self) {} } \
                   pub enum Kind { One(A), Two { b: B } } pub type List = Vec<(u32, A)>;";
        let other = "pub struct X; impl X { pub fn a(&self) {} pub fn b(&self) {} \
                     pub fn each(&self, f: impl Fn(&X)) {} }";
        let calls = |text: &str| edges(&[("lib.rs", lib), ("other.rs", other), ("user.rs", text)]);
        let user = |text: &str| calls(&format!("use crate::*; use crate::other::X; {text}"));
        let (a, a_b) = (["user.rs -> lib.rs: a"], ["user.rs -> lib.rs: a b"]);
        assert_eq!(user("fn f(l: &List) { for (_, it) in l { it.a(); } }"), a);
        let chain = "fn f(l: List) { l.iter().enumerate().filter(|(_, it)| it.0 > 1)\
                     .filter_map(|(_, (_, it))| it.a()).for_each(|it| it.b()); }";
        assert_eq!(user(chain), a_b);
        let kinds =
            "fn f(k: Kind) { match k { Kind::One(x) => { x.a(); } Kind::Two { b } => b.b() } }";
        assert_eq!(user(kinds), a_b);
        assert_eq!(user("fn f(x: &X) { x.each(|it| it.b()); }"), ["user.rs -> other.rs: b each"]);
        let question = "fn f(a: &A) -> Option<()> { let b = a.a()?; (b.b(), ()).1; None }";
        assert_eq!(user(question), a_b);
    }

    #[test]
    fn a_lock_lends_the_option_that_it_holds() {
        let found = edges(&[
            (
                "a.rs",
                "pub struct A; impl A { pub fn clone(&self) -> A { A } pub fn row(&self) {} }",
            ),
            (
                "b.rs",
                "pub struct B { b: Mutex<Option<u32>> } impl B { fn b(&self) { \
                 self.b.lock().clone(); } }",
            ),
            (
                "c.rs",
                "struct C { c: Mutex<Option<crate::a::A>> } impl C { fn c(&self) { \
                 self.c.lock().clone().unwrap().row(); } }",
            ),
        ]);
        assert_eq!(found, ["c.rs -> a.rs: row"]);
    }

    #[test]
    fn a_lock_lends_the_map_that_it_holds_and_a_cell_may_refuse() {
        let a = "pub struct A; impl A { pub fn name(&self) -> u32 { 1 } }";
        let other = "pub struct B; impl B { pub fn name(&self) {} }";
        let user = "use crate::a::A; struct C { map: LeafMutex<BTreeMap<u32, A>>, \
                    cell: RefCell<A> } impl C { fn c(&self) { let map = self.map.lock(); \
                    map.values().find(|it| it.name() > 1); \
                    let Ok(cell) = self.cell.try_borrow_mut() else { return }; cell.name(); } }";
        let found = edges(&[("a.rs", a), ("b.rs", other), ("c.rs", user)]);
        assert_eq!(found, ["c.rs -> a.rs: name"]);
    }

    #[test]
    fn calls_in_macros_count() {
        let found = edges(&[
            ("a.rs", "pub fn one() -> u32 { 1 } pub struct A; impl A { pub fn two(&self) {} }"),
            ("b.rs", "fn b() { assert_eq!(crate::a::one(), 1); }"),
            ("c.rs", "macro_rules! each { ($it:ident) => { $it.two() } }"),
        ]);
        assert_eq!(found, ["b.rs -> a.rs: one", "c.rs -> a.rs: two"]);
        let found = edges(&[
            ("a.rs", "pub struct A; impl A { pub fn new() -> A { A } pub fn two(&self) {} }"),
            ("b.rs", "pub struct B; impl B { pub fn two(&self) {} }"),
            (
                "c.rs",
                "macro_rules! all { ($($of:ty),*) => { fn c(it: X) { $(<$of>::new(); it.two();)* } \
                 } } all! { crate::a::A }",
            ),
        ]);
        assert_eq!(found, ["c.rs -> a.rs: new two"], "B is not given");
    }

    #[test]
    fn what_another_crate_returns_is_another_crates() {
        let found = edges(&[
            ("a.rs", "pub struct A; impl A { pub fn close(self) {} pub fn row(&self) {} }"),
            (
                "b.rs",
                "fn b(place: &other::Place) { let it = place.open()?; it.rows()?.row(); \
                 it.close(); for each in place.all()? { each.row(); } }",
            ),
            ("c.rs", "fn c(place: &crate::a::A) { place.row(); }"),
        ]);
        assert_eq!(found, ["c.rs -> a.rs: row"]);
    }
}
