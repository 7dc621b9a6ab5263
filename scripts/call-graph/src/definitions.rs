//! What a crate defines: functions, methods, and the fields of its types.

use std::collections::{BTreeSet, HashMap, HashSet};

use syn::{Fields, FnArg, ImplItem, Item, Signature, TraitItem, TypeParamBound};

use crate::modules::{Imports, ModuleId, Modules};
use crate::source::Source;
use crate::types::{Bounds, Named, Place, bounds_of};

/// A function or method.
pub struct Function {
    pub file: usize,
    pub returns: Named,
    /// What its parameters are, but for `self`.
    pub takes: Vec<Named>,
}

/// How large a type is.
pub struct TypeSize {
    pub name: String,
    pub methods: usize,
    pub fields: usize,
    pub files: usize,
}

pub struct Definitions {
    pub modules: Modules,
    free: HashMap<String, Function>,
    /// By type or trait, then by name. Several traits may give a type methods of one name.
    methods: HashMap<String, HashMap<String, Vec<Function>>>,
    fields: HashMap<String, HashMap<String, Named>>,
    /// Types of constants and statics.
    constants: HashMap<String, Named>,
    /// The enums of variants.
    variants: HashMap<String, String>,
    /// Structs that are made by calling their names.
    tuples: HashSet<String>,
    /// What types dereference to.
    targets: HashMap<String, Named>,
    /// The traits that a type implements, or that a trait demands.
    implemented: HashMap<String, BTreeSet<String>>,
}

const NO_METHODS: [&Function; 0] = [];

impl Definitions {
    pub fn of(sources: &[Source]) -> Definitions {
        let mut all = Definitions {
            modules: Modules::of(sources),
            free: HashMap::new(),
            methods: HashMap::new(),
            fields: HashMap::new(),
            constants: HashMap::new(),
            variants: HashMap::new(),
            tuples: HashSet::new(),
            targets: HashMap::new(),
            implemented: HashMap::new(),
        };
        for (file, source) in sources.iter().enumerate() {
            let module = all.modules.at(&source.module);
            all.add_items(file, module, &source.items);
        }
        all
    }

    fn add_items(&mut self, file: usize, module: ModuleId, items: &[Item]) {
        for item in items {
            match item {
                Item::Fn(it) => {
                    let key = self.modules.key(module, &it.sig.ident.to_string());
                    let function = self.function(file, module, None, &it.sig, &Bounds::new());
                    self.free.insert(key, function);
                }
                Item::Struct(it) => {
                    let key = self.modules.key(module, &it.ident.to_string());
                    self.add_fields(module, &key, &it.fields, &it.generics);
                    if matches!(it.fields, Fields::Unnamed(_)) {
                        self.tuples.insert(key);
                    }
                }
                Item::Enum(it) => {
                    let key = self.modules.key(module, &it.ident.to_string());
                    self.fields.entry(key.clone()).or_default();
                    for variant in &it.variants {
                        let of_variant = format!("{key}::{}", variant.ident);
                        self.add_fields(module, &of_variant, &variant.fields, &it.generics);
                        self.variants.insert(of_variant, key.clone());
                    }
                }
                Item::Const(it) => self.add_constant(module, None, &it.ident, &it.ty),
                Item::Static(it) => self.add_constant(module, None, &it.ident, &it.ty),
                Item::Trait(it) => self.add_trait(file, module, it),
                Item::Impl(it) => self.add_impl(file, module, it),
                Item::Mod(it) => {
                    if let Some((_, inner)) = &it.content {
                        let child = self.modules.child(module, &it.ident.to_string());
                        self.add_items(file, child, inner);
                    }
                }
                _ => (),
            }
        }
    }

    fn add_trait(&mut self, file: usize, module: ModuleId, it: &syn::ItemTrait) {
        let key = self.modules.key(module, &it.ident.to_string());
        let demanded = it.supertraits.iter().filter_map(|bound| match bound {
            TypeParamBound::Trait(it) => Some(&it.path),
            _ => None,
        });
        let demanded: BTreeSet<String> =
            demanded.map(|path| self.trait_key(module, path)).collect();
        self.implemented.entry(key.clone()).or_default().extend(demanded);
        self.fields.entry(key.clone()).or_default();
        for inner in &it.items {
            if let TraitItem::Fn(method) = inner {
                self.add_method(file, module, &key, &method.sig, &Bounds::new());
            }
        }
    }

    fn add_impl(&mut self, file: usize, module: ModuleId, it: &syn::ItemImpl) {
        let (bounds, own) = self.implementor(module, it);
        let Some(own) = own else { return };
        if let Some(path) = it.trait_.as_ref().map(|of| &of.1) {
            let implemented = self.trait_key(module, path);
            self.implemented.entry(own.clone()).or_default().insert(implemented);
        }
        for inner in &it.items {
            match inner {
                ImplItem::Fn(method) => self.add_method(file, module, &own, &method.sig, &bounds),
                ImplItem::Const(it) => self.add_constant(module, Some(&own), &it.ident, &it.ty),
                ImplItem::Type(it) if it.ident == "Target" => {
                    let target = self.declared(module, Some(&own), &it.ty, &bounds);
                    self.targets.insert(own.clone(), target);
                }
                _ => (),
            }
        }
    }

    /// The type parameters of an implementation, and the key of what it is of.
    pub fn implementor(&self, module: ModuleId, it: &syn::ItemImpl) -> (Bounds, Option<String>) {
        let (none, imports) = (Bounds::new(), Imports::default());
        let place =
            Place { modules: &self.modules, module, own: None, bounds: &none, imports: &imports };
        let bounds = bounds_of(&it.generics, place);
        let own = match Named::of(&it.self_ty, Place { bounds: &bounds, ..place }) {
            Named::Of(key) => Some(key),
            _ => None,
        };
        (bounds, own)
    }

    fn trait_key(&self, module: ModuleId, path: &syn::Path) -> String {
        let segments: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let key = self.modules.resolve(module, &segments, &Imports::default());
        key.unwrap_or_else(|| format!("::{}", segments.last().map_or("", String::as_str)))
    }

    fn declared(
        &self,
        module: ModuleId,
        own: Option<&str>,
        ty: &syn::Type,
        bounds: &Bounds,
    ) -> Named {
        let imports = Imports::default();
        Named::of(ty, Place { modules: &self.modules, module, own, bounds, imports: &imports })
    }

    fn add_constant(
        &mut self,
        module: ModuleId,
        own: Option<&str>,
        name: &syn::Ident,
        ty: &syn::Type,
    ) {
        let key = match own {
            Some(own) => format!("{own}::{name}"),
            None => self.modules.key(module, &name.to_string()),
        };
        let named = self.declared(module, own, ty, &Bounds::new());
        self.constants.insert(key, named);
    }

    fn add_fields(&mut self, module: ModuleId, key: &str, fields: &Fields, of: &syn::Generics) {
        let (none, imports) = (Bounds::new(), Imports::default());
        let place =
            Place { modules: &self.modules, module, own: None, bounds: &none, imports: &imports };
        let bounds = bounds_of(of, place);
        let named: HashMap<String, Named> = fields
            .iter()
            .enumerate()
            .map(|(index, field)| {
                let name = field.ident.as_ref().map_or(index.to_string(), ToString::to_string);
                (name, self.declared(module, Some(key), &field.ty, &bounds))
            })
            .collect();
        self.fields.insert(key.to_string(), named);
    }

    fn function(
        &self,
        file: usize,
        module: ModuleId,
        own: Option<&str>,
        sig: &Signature,
        outer: &Bounds,
    ) -> Function {
        let imports = Imports::default();
        let place = Place { modules: &self.modules, module, own, bounds: outer, imports: &imports };
        let bounds = bounds_of(&sig.generics, place);
        let place = Place { bounds: &bounds, ..place };
        let takes = sig.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(it) => Some(Named::of(&it.ty, place)),
            FnArg::Receiver(_) => None,
        });
        let takes = takes.collect();
        Function { file, returns: known_outside(Named::returned(&sig.output, place)), takes }
    }

    fn add_method(
        &mut self,
        file: usize,
        module: ModuleId,
        owner: &str,
        sig: &Signature,
        outer: &Bounds,
    ) {
        let function = self.function(file, module, Some(owner), sig, outer);
        let of_owner = self.methods.entry(owner.to_string()).or_default();
        of_owner.entry(sig.ident.to_string()).or_default().push(function);
    }

    pub fn functions_count(&self) -> usize {
        let methods = self.methods.values().flat_map(HashMap::values).map(Vec::len).sum::<usize>();
        self.free.len() + methods
    }

    /// The declared type of a field.
    pub fn field(&self, of: &Named, name: &str) -> Named {
        match of {
            Named::Of(key) => {
                let field = self.fields.get(key).and_then(|fields| fields.get(name));
                match (field, self.targets.get(key)) {
                    (Some(field), _) => field.clone(),
                    (None, Some(target)) => self.field(&target.clone(), name),
                    (None, None) => Named::Unknown,
                }
            }
            Named::Tuple(parts) => {
                let part = name.parse().ok().and_then(|at: usize| parts.get(at));
                part.cloned().unwrap_or(Named::Unknown)
            }
            _ => Named::Unknown,
        }
    }

    /// The function outside of types whose path is `key`.
    pub fn free(&self, key: &str) -> Option<&Function> {
        self.free.get(key)
    }

    /// The type of a constant, or of what is made by calling a tuple's or variant's name.
    pub fn value(&self, key: &str) -> Option<Named> {
        let made = || self.tuples.contains(key).then(|| key.to_string());
        let of_variant = self.variants.get(key).cloned().or_else(made);
        of_variant.map(Named::Of).or_else(|| self.constants.get(key).cloned())
    }

    /// The type that an expression of fields makes which begins with `key`.
    pub fn made(&self, key: &str) -> Named {
        Named::Of(self.variants.get(key).cloned().unwrap_or_else(|| key.to_string()))
    }

    /// What `receiver.name()` or `receiver::name()` may call: a type's own method, or that of a
    /// trait which it implements and which provides it. Of a trait object, and of what must only
    /// implement a trait, the trait's. Without a known receiver every method of the name.
    pub fn methods(&self, receiver: &Named, name: &str) -> Vec<&Function> {
        match receiver {
            Named::Of(key) => {
                let found = self.of_owner(key, name);
                let found = if found.is_empty() { self.of_traits(key, name) } else { found };
                match self.targets.get(key) {
                    Some(target) if found.is_empty() => self.methods(target, name),
                    _ => found,
                }
            }
            Named::Bound(traits) => {
                let of_trait = |key: &String| {
                    let own = self.of_owner(key, name);
                    if own.is_empty() { self.of_traits(key, name) } else { own }
                };
                traits.iter().map(of_trait).find(|found| !found.is_empty()).unwrap_or_default()
            }
            Named::Unknown => {
                let mut all: Vec<&Function> =
                    self.methods.values().filter_map(|of| of.get(name)).flatten().collect();
                all.sort_by_key(|function| function.file);
                all
            }
            // Of an `Option`, or of a slice: methods of the library.
            _ => NO_METHODS.to_vec(),
        }
    }

    fn of_owner(&self, key: &str, name: &str) -> Vec<&Function> {
        let found = self.methods.get(key).and_then(|methods| methods.get(name));
        found.into_iter().flatten().collect()
    }

    /// The method that a trait of `key` provides or demands.
    fn of_traits(&self, key: &str, name: &str) -> Vec<&Function> {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&String> = self.implemented.get(key).into_iter().flatten().collect();
        while let Some(key) = next.pop() {
            let found = self.of_owner(key, name);
            if !found.is_empty() {
                return found;
            }
            if seen.insert(key) {
                next.extend(self.implemented.get(key).into_iter().flatten());
            }
        }
        Vec::new()
    }

    /// The ten types with the most methods.
    pub fn largest_types(&self) -> Vec<TypeSize> {
        let size_of = |(key, methods): (&String, &HashMap<String, Vec<Function>>)| {
            let files: BTreeSet<usize> =
                methods.values().flatten().map(|function| function.file).collect();
            TypeSize {
                name: key.clone(),
                methods: methods.values().map(Vec::len).sum(),
                fields: self.fields.get(key).map_or(0, HashMap::len),
                files: files.len(),
            }
        };
        let mut sizes: Vec<TypeSize> = self.methods.iter().map(size_of).collect();
        sizes.sort_by(|a, b| b.methods.cmp(&a.methods).then_with(|| a.name.cmp(&b.name)));
        sizes.truncate(10);
        sizes
    }
}

/// A type parameter without bounds may be anything where the function is called.
fn known_outside(returned: Named) -> Named {
    match returned {
        Named::Bound(traits) if traits.is_empty() => Named::Unknown,
        Named::Wrapped(inner) => Named::wrapped(known_outside(*inner)),
        Named::Many(inner) => Named::many(known_outside(*inner)),
        Named::Tuple(parts) => Named::Tuple(parts.into_iter().map(known_outside).collect()),
        other => other,
    }
}
