//! What a type is called, and what it stands for as a receiver.

use std::collections::HashMap;

use syn::{GenericArgument, PathArguments, ReturnType, Type, TypeParamBound};

/// What dereferences to what it holds, or lends it out.
const TRANSPARENT: [&str; 20] = [
    "Arc",
    "Rc",
    "Box",
    "Ref",
    "RefMut",
    "Pin",
    "MutexGuard",
    "Guard",
    "Cow",
    "Mutex",
    "LeafMutex",
    "LeafGuard",
    "RwLatch",
    "RefCell",
    "Cell",
    "OnceCell",
    "OnceLock",
    "ManuallyDrop",
    "Weak",
    "UnsafeCell",
];
/// What an operator or a method of its own takes the value out of.
const WRAPPERS: [&str; 2] = ["Option", "Result"];
/// Whose elements a method or a loop hands on.
const COLLECTIONS: [&str; 5] = ["Vec", "VecDeque", "BTreeSet", "HashSet", "BinaryHeap"];

/// A declared type, as far as calls need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// A type or trait of this name.
    Of(String),
    /// An `Option` or `Result` of it.
    Wrapped(Box<Named>),
    /// Several of it, in a slice, array or `Vec`.
    Many(Box<Named>),
    Unknown,
}

/// The type parameters in scope, with the trait that each must implement first.
pub type Bounds = HashMap<String, String>;

impl Named {
    /// The type that `ty` declares. `Self` is `own`.
    pub fn of(ty: &Type, own: Option<&str>, bounds: &Bounds) -> Named {
        match ty {
            Type::Reference(it) => Named::of(&it.elem, own, bounds),
            Type::Paren(it) => Named::of(&it.elem, own, bounds),
            Type::Group(it) => Named::of(&it.elem, own, bounds),
            Type::Slice(it) => Named::Many(Box::new(Named::of(&it.elem, own, bounds))),
            Type::Array(it) => Named::Many(Box::new(Named::of(&it.elem, own, bounds))),
            Type::ImplTrait(it) => of_bounds(it.bounds.iter()),
            Type::TraitObject(it) => of_bounds(it.bounds.iter()),
            Type::Path(it) => {
                let Some(last) = it.path.segments.last() else { return Named::Unknown };
                let name = last.ident.to_string();
                let inner = || {
                    first_argument(&last.arguments)
                        .map_or(Named::Unknown, |ty| Named::of(ty, own, bounds))
                };
                if name == "Self" {
                    return own.map_or(Named::Unknown, |own| Named::Of(own.to_string()));
                }
                if let Some(bound) = bounds.get(&name) {
                    return Named::Of(bound.clone());
                }
                match name.as_str() {
                    name if TRANSPARENT.contains(&name) => inner(),
                    name if WRAPPERS.contains(&name) => Named::Wrapped(Box::new(inner())),
                    name if COLLECTIONS.contains(&name) => Named::Many(Box::new(inner())),
                    _ => Named::Of(name),
                }
            }
            _ => Named::Unknown,
        }
    }

    /// What a function returns.
    pub fn returned(output: &ReturnType, own: Option<&str>, bounds: &Bounds) -> Named {
        match output {
            ReturnType::Default => Named::Unknown,
            ReturnType::Type(_, ty) => Named::of(ty, own, bounds),
        }
    }

    /// What `?`, `unwrap` or a pattern takes out of it.
    pub fn unwrapped(self) -> Named {
        match self {
            Named::Wrapped(inner) => *inner,
            other => other,
        }
    }

    /// One of many.
    pub fn element(self) -> Named {
        match self {
            Named::Many(inner) => *inner,
            _ => Named::Unknown,
        }
    }
}

/// The type parameters of `generics`, those of `outer` included.
pub fn bounds_of(generics: &syn::Generics, outer: &Bounds) -> Bounds {
    let mut bounds = outer.clone();
    for parameter in generics.type_params() {
        if let Named::Of(bound) = of_bounds(parameter.bounds.iter()) {
            bounds.insert(parameter.ident.to_string(), bound);
        }
    }
    for predicate in generics.where_clause.iter().flat_map(|clause| &clause.predicates) {
        if let syn::WherePredicate::Type(it) = predicate
            && let Type::Path(path) = &it.bounded_ty
            && let Some(name) = path.path.get_ident()
            && let Named::Of(bound) = of_bounds(it.bounds.iter())
        {
            bounds.insert(name.to_string(), bound);
        }
    }
    bounds
}

fn of_bounds<'a>(bounds: impl Iterator<Item = &'a TypeParamBound> + Clone) -> Named {
    // `impl Iterator<Item = T>` hands on many of T.
    let items = bounds.clone().find_map(|bound| match bound {
        TypeParamBound::Trait(it) => item_of(it),
        _ => None,
    });
    if let Some(item) = items {
        return Named::Many(Box::new(Named::of(item, None, &Bounds::new())));
    }
    let mut traits = bounds.filter_map(|bound| match bound {
        TypeParamBound::Trait(it) => it.path.segments.last().map(|last| last.ident.to_string()),
        _ => None,
    });
    traits.next().map_or(Named::Unknown, Named::Of)
}

fn item_of(bound: &syn::TraitBound) -> Option<&Type> {
    let PathArguments::AngleBracketed(list) = &bound.path.segments.last()?.arguments else {
        return None;
    };
    list.args.iter().find_map(|argument| match argument {
        GenericArgument::AssocType(it) if it.ident == "Item" => Some(&it.ty),
        _ => None,
    })
}

fn first_argument(arguments: &PathArguments) -> Option<&Type> {
    let PathArguments::AngleBracketed(list) = arguments else { return None };
    list.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}
