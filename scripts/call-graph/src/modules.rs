//! The modules of a crate, and what a path in one of them names.
//!
//! A path is resolved as the compiler does it: by the items and child modules of the module, then
//! by its `use` declarations, re-exports and globs included. What is not found so is another
//! crate's.

use std::collections::{BTreeSet, HashMap};

use syn::{Item, UseTree};

use crate::source::Source;

/// Re-exports of re-exports, at most.
const DEPTH_MAX: u32 = 16;

/// The number of a module.
pub type ModuleId = usize;

/// The modules of a crate; the first is its root.
pub struct Modules {
    list: Vec<Module>,
    by_path: HashMap<Vec<String>, ModuleId>,
    /// Types that are only names for others, by their own names: where they stand, and the others.
    aliases: HashMap<String, (ModuleId, syn::Type)>,
}

#[derive(Default)]
struct Module {
    path: Vec<String>,
    items: BTreeSet<String>,
    imports: Imports,
}

/// The names that `use` declarations bring in.
#[derive(Clone, Debug, Default)]
pub struct Imports {
    names: HashMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

impl Imports {
    /// Adds the names of a declaration.
    pub fn add(&mut self, tree: &UseTree) {
        self.add_below(&mut Vec::new(), tree);
    }

    fn add_below(&mut self, path: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(it) => {
                path.push(it.ident.to_string());
                self.add_below(path, &it.tree);
                path.pop();
            }
            UseTree::Name(it) if it.ident == "self" => {
                let name = path.last().cloned().unwrap_or_default();
                self.names.insert(name, path.clone());
            }
            UseTree::Name(it) => self.name(path, &it.ident.to_string(), &it.ident.to_string()),
            UseTree::Rename(it) => self.name(path, &it.ident.to_string(), &it.rename.to_string()),
            UseTree::Glob(_) => self.globs.push(path.clone()),
            UseTree::Group(it) => it.items.iter().for_each(|tree| self.add_below(path, tree)),
        }
    }

    fn name(&mut self, path: &[String], name: &str, rename: &str) {
        let whole = path.iter().cloned().chain([name.to_string()]).collect();
        self.names.insert(rename.to_string(), whole);
    }
}

impl Modules {
    pub fn of(sources: &[Source]) -> Modules {
        let mut all =
            Modules { list: Vec::new(), by_path: HashMap::new(), aliases: HashMap::new() };
        all.module(&[]);
        for source in sources {
            let module = all.module(&source.module);
            all.add_items(module, &source.items);
        }
        all
    }

    /// The module at `path`, which begins if it is not known yet.
    fn module(&mut self, path: &[String]) -> ModuleId {
        if let Some(&known) = self.by_path.get(path) {
            return known;
        }
        let id = self.list.len();
        self.list.push(Module { path: path.to_vec(), ..Module::default() });
        self.by_path.insert(path.to_vec(), id);
        id
    }

    fn add_items(&mut self, module: ModuleId, items: &[Item]) {
        for item in items {
            let name = match item {
                Item::Fn(it) => &it.sig.ident,
                Item::Struct(it) => &it.ident,
                Item::Enum(it) => &it.ident,
                Item::Union(it) => &it.ident,
                Item::Trait(it) => &it.ident,
                Item::Const(it) => &it.ident,
                Item::Static(it) => &it.ident,
                Item::Type(it) => {
                    let key = self.key(module, &it.ident.to_string());
                    self.aliases.insert(key, (module, (*it.ty).clone()));
                    &it.ident
                }
                Item::Use(it) => {
                    self.list[module].imports.add(&it.tree);
                    continue;
                }
                Item::Mod(it) => {
                    if let Some((_, inner)) = &it.content {
                        let mut path = self.list[module].path.clone();
                        path.push(it.ident.to_string());
                        let child = self.module(&path);
                        self.add_items(child, inner);
                    }
                    continue;
                }
                _ => continue,
            };
            let name = name.to_string();
            self.list[module].items.insert(name);
        }
    }

    /// The module of the file or of the block `name` in it.
    pub fn at(&self, path: &[String]) -> ModuleId {
        self.by_path[path]
    }

    /// A child of `module`.
    pub fn child(&self, module: ModuleId, name: &str) -> ModuleId {
        let path: Vec<String> =
            self.list[module].path.iter().cloned().chain([name.to_string()]).collect();
        self.at(&path)
    }

    /// The name, unique in the crate, of an item of `module`.
    pub fn key(&self, module: ModuleId, name: &str) -> String {
        let path = self.list[module].path.iter().map(String::as_str);
        path.chain([name]).collect::<Vec<_>>().join("::")
    }

    /// The type that `key` is only another name of, and the module in which it is written.
    pub fn alias(&self, key: &str) -> Option<&(ModuleId, syn::Type)> {
        self.aliases.get(key)
    }

    /// What `segments` name in `module`, where `local` is imported, too: a name unique in the
    /// crate, or `None` if it is another crate's.
    pub fn resolve(
        &self,
        module: ModuleId,
        segments: &[String],
        local: &Imports,
    ) -> Option<String> {
        let local = self.imported(module, local, segments, 0);
        let path = local.or_else(|| self.absolute(module, segments, 0))?;
        Some(path.join("::"))
    }

    fn absolute(&self, module: ModuleId, segments: &[String], depth: u32) -> Option<Vec<String>> {
        let (first, rest) = segments.split_first()?;
        if depth > DEPTH_MAX {
            return None;
        }
        match first.as_str() {
            "crate" => self.walk(0, rest, depth),
            "self" => self.walk(module, rest, depth),
            "super" => {
                let path = &self.list[module].path;
                let parent = self.by_path.get(path.get(..path.len().checked_sub(1)?)?)?;
                match rest.first().is_some_and(|next| next == "super") {
                    true => self.absolute(*parent, rest, depth + 1),
                    false => self.walk(*parent, rest, depth),
                }
            }
            _ => self.walk(module, segments, depth),
        }
    }

    fn walk(&self, module: ModuleId, segments: &[String], depth: u32) -> Option<Vec<String>> {
        let Module { path, items, imports } = &self.list[module];
        let Some((first, rest)) = segments.split_first() else { return Some(path.clone()) };
        let child: Vec<String> = path.iter().cloned().chain([first.clone()]).collect();
        let child = self.by_path.get(&child).copied();
        if let Some(child) = child.filter(|_| !rest.is_empty())
            && let Some(found) = self.walk(child, rest, depth)
        {
            return Some(found);
        }
        if items.contains(first) {
            return Some(path.iter().chain(segments).cloned().collect());
        }
        let imported = self.imported(module, imports, segments, depth);
        imported.or_else(|| child.and_then(|child| self.walk(child, rest, depth)))
    }

    fn imported(
        &self,
        module: ModuleId,
        imports: &Imports,
        segments: &[String],
        depth: u32,
    ) -> Option<Vec<String>> {
        let (first, rest) = segments.split_first()?;
        if depth > DEPTH_MAX {
            return None;
        }
        if let Some(path) = imports.names.get(first) {
            let whole: Vec<String> = path.iter().chain(rest).cloned().collect();
            return self.absolute(module, &whole, depth + 1);
        }
        let of_glob = |glob: &Vec<String>| {
            let whole: Vec<String> = glob.iter().chain(segments).cloned().collect();
            self.absolute(module, &whole, depth + 1)
        };
        imports.globs.iter().find_map(of_glob)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::crate_of;

    #[test]
    fn paths_are_resolved_as_the_compiler_does() {
        let sources = crate_of(&[
            ("lib.rs", "mod a; mod b; pub use a::inner::Deep; pub use a::both;"),
            ("a/mod.rs", "pub mod inner; mod both; pub use both::both; use super::b::*;"),
            ("a/inner.rs", "pub struct Deep; use crate::b as other; use Vec;"),
            ("a/both.rs", "pub fn both() {}"),
            ("b.rs", "pub fn shared() {} pub enum Kind { One }"),
        ]);
        let modules = Modules::of(&sources);
        let resolve = |module: &[&str], path: &str| {
            let module: Vec<String> = module.iter().map(ToString::to_string).collect();
            let path: Vec<String> = path.split("::").map(str::to_string).collect();
            modules.resolve(modules.at(&module), &path, &Imports::default())
        };
        let is = |name: &str| Some(name.to_string());
        assert_eq!(resolve(&["b"], "crate::Deep"), is("a::inner::Deep"), "a re-export");
        assert_eq!(resolve(&["b"], "crate::Deep::new"), is("a::inner::Deep::new"));
        assert_eq!(resolve(&["a"], "both"), is("a::both::both"), "module and function");
        assert_eq!(resolve(&[], "both"), is("a::both::both"));
        assert_eq!(resolve(&["a"], "shared"), is("b::shared"), "a glob");
        assert_eq!(resolve(&["a", "inner"], "other::Kind::One"), is("b::Kind::One"));
        assert_eq!(resolve(&["a", "inner"], "super::super::b::shared"), is("b::shared"));
        assert_eq!(resolve(&["a", "inner"], "shared"), None, "not imported here");
        assert_eq!(resolve(&["a", "inner"], "Vec::new"), None, "another crate's");
    }
}
