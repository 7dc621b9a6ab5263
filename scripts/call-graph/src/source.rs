//! The files of a crate, parsed, without their tests.

use std::fs;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned as _;
use syn::{Attribute, Item, Meta};

/// A file of the crate.
pub struct Source {
    /// Its path within the crate's folder of sources.
    pub name: String,
    /// The path of its module within the crate.
    pub module: Vec<String>,
    pub items: Vec<Item>,
    /// Lines without its tests.
    pub lines: usize,
}

impl Source {
    /// All files below `folder`, in the order of their names.
    pub fn read_all(folder: &str) -> Result<Vec<Source>, String> {
        let mut paths = Vec::new();
        find(Path::new(folder), &mut paths)?;
        paths.sort();
        let mut tests = Vec::new();
        let mut sources = Vec::new();
        for path in paths {
            let text =
                fs::read_to_string(&path).map_err(|it| format!("{}: {it}", path.display()))?;
            let file = syn::parse_file(&text).map_err(|it| format!("{}: {it}", path.display()))?;
            let of_tests = file.items.iter().filter(|item| is_test(item)).map(lines_of);
            let lines = text.lines().count() - of_tests.sum::<usize>();
            tests.extend(file.items.iter().filter_map(|item| test_module(item, &path)));
            let items = file.items.into_iter().filter(|item| !is_test(item)).collect();
            let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
            let module = module_of(&name);
            sources.push((path, Source { name, module, items, lines }));
        }
        // A module of tests in a file or folder of its own.
        let is_kept = |path: &Path| !tests.iter().any(|test| path.starts_with(test));
        sources.retain(|(path, _)| is_kept(path) && is_kept(&path.with_extension("")));
        Ok(sources.into_iter().map(|(_, source)| source).collect())
    }
}

fn lines_of(item: &Item) -> usize {
    let span = item.span();
    span.end().line - span.start().line + 1
}

/// The path of the module that the file `name` is.
fn module_of(name: &str) -> Vec<String> {
    let name = name.trim_end_matches(".rs");
    let mut path: Vec<String> = name.split('/').map(str::to_string).collect();
    if path.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        path.pop();
    }
    path
}

/// A crate for tests: names of files, and what is in them.
#[cfg(test)]
pub fn crate_of(files: &[(&str, &str)]) -> Vec<Source> {
    let source = |&(name, text): &(&str, &str)| Source {
        name: name.to_string(),
        module: module_of(name),
        items: syn::parse_file(text).expect("a test's source").items,
        lines: text.lines().count(),
    };
    files.iter().map(source).collect()
}

fn find(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|it| format!("{}: {it}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|it| format!("{}: {it}", folder.display()))?.path();
        if path.is_dir() {
            find(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
    Ok(())
}

/// Where the module of tests that `item` declares has its files, without the extension.
fn test_module(item: &Item, declared_in: &Path) -> Option<PathBuf> {
    let Item::Mod(module) = item else { return None };
    if !is_test(item) || module.content.is_some() {
        return None;
    }
    let stem = declared_in.file_stem()?;
    let is_root = ["lib", "main", "mod"].iter().any(|root| stem == *root);
    let folder = declared_in.parent()?;
    let folder = if is_root { folder.to_path_buf() } else { folder.join(stem) };
    Some(folder.join(module.ident.to_string()))
}

fn is_test(item: &Item) -> bool {
    attributes(item).iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition.starts_with("test") || condition.starts_with("all (test")
        }
        meta => meta.path().is_ident("test"),
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}
