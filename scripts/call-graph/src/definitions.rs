//! What a crate defines: functions, methods, and the fields of its types.

use std::collections::{BTreeSet, HashMap, HashSet};

use syn::{Fields, ImplItem, Item, Signature, TraitItem, Type};

use crate::source::Source;
use crate::types::{Bounds, Named, bounds_of};

/// A function or method.
pub struct Function {
    pub file: usize,
    /// The type or trait that it belongs to.
    pub owner: Option<String>,
    pub returns: Named,
}

/// How large a type is.
pub struct TypeSize {
    pub name: String,
    pub methods: usize,
    pub fields: usize,
    pub files: usize,
}

#[derive(Default)]
pub struct Definitions {
    functions: HashMap<String, Vec<Function>>,
    fields: HashMap<String, HashMap<String, Named>>,
    types: HashSet<String>,
    /// The traits of the crate that a type implements.
    implemented: HashMap<String, BTreeSet<String>>,
    traits: HashSet<String>,
}

impl Definitions {
    pub fn of(sources: &[Source]) -> Definitions {
        let mut all = Definitions::default();
        for (file, source) in sources.iter().enumerate() {
            all.add_items(file, &source.items);
        }
        all
    }

    fn add_items(&mut self, file: usize, items: &[Item]) {
        for item in items {
            match item {
                Item::Fn(it) => self.add(file, None, &it.sig, &Bounds::new()),
                Item::Struct(it) => {
                    let bounds = bounds_of(&it.generics, &Bounds::new());
                    let name = it.ident.to_string();
                    self.types.insert(name.clone());
                    self.fields.entry(name).or_default().extend(fields_of(&it.fields, &bounds));
                }
                Item::Enum(it) => drop(self.types.insert(it.ident.to_string())),
                Item::Trait(it) => {
                    let name = it.ident.to_string();
                    self.types.insert(name.clone());
                    self.traits.insert(name.clone());
                    for inner in &it.items {
                        if let TraitItem::Fn(method) = inner {
                            self.add(file, Some(&name), &method.sig, &Bounds::new());
                        }
                    }
                }
                Item::Impl(it) => {
                    let Some(own) = name_of(&it.self_ty) else { continue };
                    let bounds = bounds_of(&it.generics, &Bounds::new());
                    if let Some(last) = it.trait_.as_ref().and_then(|of| of.1.segments.last()) {
                        let traits = self.implemented.entry(own.clone()).or_default();
                        traits.insert(last.ident.to_string());
                    }
                    for inner in &it.items {
                        if let ImplItem::Fn(method) = inner {
                            self.add(file, Some(&own), &method.sig, &bounds);
                        }
                    }
                }
                Item::Mod(it) => {
                    let inner = it.content.as_ref().map_or(&[][..], |(_, items)| items);
                    self.add_items(file, inner);
                }
                _ => (),
            }
        }
    }

    fn add(&mut self, file: usize, owner: Option<&str>, sig: &Signature, outer: &Bounds) {
        let bounds = bounds_of(&sig.generics, outer);
        let returns = Named::returned(&sig.output, owner, &bounds);
        let function = Function { file, owner: owner.map(str::to_string), returns };
        self.functions.entry(sig.ident.to_string()).or_default().push(function);
    }

    pub fn functions_count(&self) -> usize {
        self.functions.values().map(Vec::len).sum()
    }

    /// The declared type of a field.
    pub fn field(&self, of: &str, name: &str) -> Named {
        let field = self.fields.get(of).and_then(|fields| fields.get(name));
        field.cloned().unwrap_or(Named::Unknown)
    }

    /// Functions outside of types that are called `name`.
    pub fn free(&self, name: &str) -> Vec<&Function> {
        self.named(name).filter(|function| function.owner.is_none()).collect()
    }

    /// What `receiver.name()` or `receiver::name()` may call. The receiver's own method, that of a
    /// trait it implements, or of one that implements it; without a known receiver every method of
    /// the name.
    pub fn methods(&self, receiver: &Named, name: &str) -> Vec<&Function> {
        let methods = self.named(name).filter(|function| function.owner.is_some());
        let Named::Of(receiver) = receiver else {
            // Of an `Option`, or of a slice: methods of the library.
            let unknown = *receiver == Named::Unknown;
            return methods.filter(|_| unknown).collect();
        };
        if !self.types.contains(receiver) {
            return Vec::new();
        }
        let methods: Vec<&Function> = methods.collect();
        let own = |function: &&&Function| function.owner.as_ref() == Some(receiver);
        let found: Vec<&Function> = methods.iter().filter(own).copied().collect();
        if self.traits.contains(receiver) {
            let implements = |owner: &String| {
                self.implemented.get(owner).is_some_and(|traits| traits.contains(receiver))
            };
            let is_of = |function: &&&Function| function.owner.as_ref().is_some_and(implements);
            return found.into_iter().chain(methods.iter().filter(is_of).copied()).collect();
        }
        if !found.is_empty() {
            return found;
        }
        let traits = self.implemented.get(receiver);
        let is_provided = |function: &&&Function| {
            let owner = function.owner.as_ref();
            owner.is_some_and(|owner| traits.is_some_and(|traits| traits.contains(owner)))
        };
        methods.iter().filter(is_provided).copied().collect()
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &Function> {
        self.functions.get(name).into_iter().flatten()
    }

    /// The ten types with the most methods.
    pub fn largest_types(&self) -> Vec<TypeSize> {
        let mut sizes: HashMap<&str, (usize, BTreeSet<usize>)> = HashMap::new();
        for function in self.functions.values().flatten() {
            if let Some(owner) = &function.owner {
                let size = sizes.entry(owner).or_default();
                size.0 += 1;
                size.1.insert(function.file);
            }
        }
        let size_of = |(name, (methods, files)): (&str, (usize, BTreeSet<usize>))| TypeSize {
            name: name.to_string(),
            methods,
            fields: self.fields.get(name).map_or(0, HashMap::len),
            files: files.len(),
        };
        let mut sizes: Vec<TypeSize> = sizes.into_iter().map(size_of).collect();
        sizes.sort_by(|a, b| b.methods.cmp(&a.methods).then_with(|| a.name.cmp(&b.name)));
        sizes.truncate(10);
        sizes
    }
}

/// What an implementation is of.
pub fn name_of(ty: &Type) -> Option<String> {
    match Named::of(ty, None, &Bounds::new()) {
        Named::Of(name) => Some(name),
        _ => None,
    }
}

fn fields_of(fields: &Fields, bounds: &Bounds) -> HashMap<String, Named> {
    let named = fields.iter().enumerate().map(|(index, field)| {
        let name = field.ident.as_ref().map_or(index.to_string(), ToString::to_string);
        (name, Named::of(&field.ty, None, bounds))
    });
    named.collect()
}
