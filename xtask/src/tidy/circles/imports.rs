//! Which file of a package names items of which other.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// A path of names: of a module from the root of its package, or of an item.
type Path = Vec<String>;

/// Names that one file finds in another.
pub(super) struct Reference<'a> {
    pub(super) from: &'a str,
    pub(super) to: &'a str,
    /// The path as it is written.
    pub(super) name: String,
}

/// What `use` brings into a module.
struct Import {
    /// The new name; `*` for everything.
    name: String,
    /// Where it comes from, as it is written.
    path: Path,
    /// Whether it is passed on.
    is_public: bool,
}

/// A module: a file, or a part of one.
#[derive(Default)]
struct Module<'a> {
    file: &'a str,
    /// Modules declared inside, tests aside.
    children: BTreeSet<String>,
    /// Other items.
    items: BTreeSet<String>,
    /// Names among the tokens of macros that make items.
    made: BTreeSet<String>,
    imports: Vec<Import>,
    /// Paths that its code names.
    named: BTreeSet<Path>,
}

/// The modules of a package.
pub(super) struct Crate<'a> {
    modules: BTreeMap<Path, Module<'a>>,
}

impl<'a> Crate<'a> {
    /// Reads the sources in a folder `src`. The error has the file that does not parse.
    pub(super) fn parse(
        folder: &str,
        sources: &[(&'a str, &'a str)],
    ) -> Result<Crate<'a>, (&'a str, syn::Error)> {
        let mut modules = BTreeMap::new();
        let root = format!("{folder}/lib.rs");
        let root = if sources.iter().any(|(file, _)| *file == root) { "lib" } else { "main" };
        for &(file, text) in sources {
            let syntax = syn::parse_file(text).map_err(|error| (file, error))?;
            let mut reader = Reader { file, path: module_path(folder, file, root), modules: &mut modules };
            reader.module().file = file;
            reader.visit_file(&syntax);
        }
        let mut package = Crate { modules };
        package.drop_tests();
        Ok(package)
    }

    /// Drops modules that no other declares: those are of tests.
    fn drop_tests(&mut self) {
        let declared = |modules: &BTreeMap<Path, Module<'_>>, path: &Path| match path.split_last() {
            Some((name, parent)) => modules.get(parent).is_some_and(|parent| parent.children.contains(name)),
            None => true,
        };
        let paths: Vec<Path> = self.modules.keys().cloned().collect();
        // Parents come before their children.
        for path in &paths {
            if !declared(&self.modules, path) {
                self.modules.remove(path);
            }
        }
    }

    /// Which files name what of which others.
    pub(super) fn references(&self) -> Vec<Reference<'a>> {
        let mut references = Vec::new();
        for (path, module) in &self.modules {
            let mut refer = |name: &[String]| {
                if let Some(to) = self.file_of(path, name) {
                    references.push(Reference { from: module.file, to, name: name.join("::") });
                }
            };
            for import in &module.imports {
                // A module is imported for what is named of it.
                let is_module = self.module_of(path, &import.path).is_some();
                if !import.is_public && !is_module {
                    refer(&import.path);
                }
            }
            // A name alone is that of an item, or of something local, never of a module.
            let named =
                module.named.iter().filter(|name| name.len() > 1 || self.module_of(path, name).is_none());
            named.for_each(|name| refer(name));
        }
        references
    }

    /// The file that defines what `name` means inside of the module `at`; nothing where that is no item of the package.
    fn file_of(&self, at: &[String], name: &[String]) -> Option<&'a str> {
        if let Some(module) = self.module_of(at, name) {
            return self.modules.get(&module).map(|module| module.file);
        }
        self.find(at, name, 0)
    }

    /// The module that `name` means inside of the module `at`, if it is one.
    fn module_of(&self, at: &[String], name: &[String]) -> Option<Path> {
        self.walk(at, name, 0).filter(|(_, rest)| rest.is_empty()).map(|(module, _)| module)
    }

    /// Follows `name` from the module `at` through modules, by their names or by those under which they were imported:
    /// the last module, and what is left of the name. Nothing if the first part is no module.
    fn walk<'n>(&self, at: &[String], name: &'n [String], depth: usize) -> Option<(Path, &'n [String])> {
        let (first, rest) = name.split_first()?;
        let (mut module, mut rest) = match first.as_str() {
            "crate" | "$crate" => (Path::new(), rest),
            "self" => (at.to_vec(), rest),
            "super" => (at.split_last()?.1.to_vec(), rest),
            _ => (self.child(at, first, depth)?, rest),
        };
        while let Some((next, after)) = rest.split_first() {
            let child = match next.as_str() {
                "super" => module.split_last().map(|(_, parent)| parent.to_vec()),
                next => self.child(&module, next, depth),
            };
            let Some(child) = child else { break };
            (module, rest) = (child, after);
        }
        Some((module, rest))
    }

    /// The module that a single name means inside of another.
    fn child(&self, at: &[String], name: &str, depth: usize) -> Option<Path> {
        let module = self.modules.get(at)?;
        if module.children.contains(name) {
            let path = [at, &[name.to_string()]].concat();
            return self.modules.contains_key(&path).then_some(path);
        }
        if depth == MOST_IMPORTS {
            return None;
        }
        let import = module.imports.iter().find(|import| import.name == name)?;
        // `use x::x` of a name that is no module leads back here.
        let (found, rest) = self.walk(at, &import.path, depth + 1)?;
        rest.is_empty().then_some(found)
    }

    /// The file that defines an item.
    fn find(&self, at: &[String], name: &[String], depth: usize) -> Option<&'a str> {
        let (at, rest, is_here) = match self.walk(at, name, 0) {
            Some((module, rest)) => (module, rest, false),
            None => (at.to_vec(), name, true),
        };
        let module = self.modules.get(&at)?;
        let Some(first) = rest.first() else { return Some(module.file) };
        if module.items.contains(first) {
            return Some(module.file);
        }
        if depth < MOST_IMPORTS {
            if let Some(import) = module.imports.iter().find(|import| import.name == *first) {
                return self.find(&at, &import.path, depth + 1);
            }
            let globs = module.imports.iter().filter(|import| import.name == "*");
            let globs: Vec<Path> = globs.filter_map(|import| self.module_of(&at, &import.path)).collect();
            let exactly = || globs.iter().find_map(|of| self.find_exactly(of, first, depth + 1));
            let made = || {
                let makes = |of: &&Path| self.modules.get(*of).is_some_and(|of| of.made.contains(first));
                globs.iter().find(makes).and_then(|of| self.modules.get(of)).map(|of| of.file)
            };
            if let Some(file) = exactly().or_else(made) {
                return Some(file);
            }
        }
        // What a path leads to is made by a macro there; any other name is not of this package, or local.
        (!is_here).then_some(module.file)
    }

    /// The file that defines an item of a module, if the module says so.
    fn find_exactly(&self, at: &[String], name: &str, depth: usize) -> Option<&'a str> {
        let module = self.modules.get(at)?;
        let is_named = module.items.contains(name)
            || module.imports.iter().any(|import| import.name == name || import.name == "*");
        if is_named { self.find(at, &[name.to_string()], depth) } else { None }
    }
}

/// How many times a name is followed from module to module.
const MOST_IMPORTS: usize = 16;

/// The path of the module that a file is.
fn module_path(folder: &str, file: &str, root: &str) -> Path {
    let inside = file.strip_prefix(folder).unwrap_or(file).trim_start_matches('/');
    let inside = inside.strip_suffix(".rs").unwrap_or(inside);
    let mut path: Path = inside.split('/').map(String::from).collect();
    let is_parent = path.len() == 1 && path[0] == root || path.last().is_some_and(|name| name == "mod");
    if is_parent {
        path.pop();
    }
    path
}

/// Reads one file.
struct Reader<'a, 'm> {
    file: &'a str,
    path: Path,
    modules: &'m mut BTreeMap<Path, Module<'a>>,
}

impl<'a> Reader<'a, '_> {
    fn module(&mut self) -> &mut Module<'a> {
        self.modules.entry(self.path.clone()).or_default()
    }

    fn item(&mut self, name: &syn::Ident) {
        self.module().items.insert(name.to_string());
    }

    fn imports(&mut self, tree: &syn::UseTree, mut path: Path, is_public: bool) {
        let mut import =
            |name: String, path: Path| self.module().imports.push(Import { name, path, is_public });
        match tree {
            syn::UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                self.imports(&inner.tree, path, is_public);
            }
            syn::UseTree::Name(name) if name.ident == "self" => {
                if let Some(last) = path.last().cloned() {
                    import(last, path);
                }
            }
            syn::UseTree::Name(name) => {
                path.push(name.ident.to_string());
                import(name.ident.to_string(), path);
            }
            syn::UseTree::Rename(rename) => {
                path.push(rename.ident.to_string());
                import(rename.rename.to_string(), path);
            }
            syn::UseTree::Glob(_) => import("*".to_string(), path),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.imports(item, path.clone(), is_public));
            }
        }
    }

    /// A macro that is defined, or one that makes items.
    fn item_macro(&mut self, item: &syn::ItemMacro) {
        match &item.ident {
            Some(name) => self.item(name),
            None => {
                let made = item.mac.tokens.clone().into_iter().filter_map(|token| match token {
                    TokenTree::Ident(name) => Some(name.to_string()),
                    TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => None,
                });
                self.module().made.extend(made);
            }
        }
    }

    /// Paths among tokens that are no syntax yet.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Path::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.name(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => colons += 1,
                TokenTree::Group(group) => {
                    self.name(std::mem::take(&mut path));
                    self.tokens(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => self.name(std::mem::take(&mut path)),
            }
        }
        self.name(path);
    }

    fn name(&mut self, path: Path) {
        // `pub(in super::super)` names no item.
        if path.last().is_some_and(|last| !["crate", "self", "super"].contains(&last.as_str())) {
            self.module().named.insert(path);
        }
    }
}

/// Whether an item is there for tests alone.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        is_cfg && attribute.parse_args::<syn::Path>().is_ok_and(|argument| argument.is_ident("test"))
    })
}

/// The attributes of an item.
fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::ExternCrate(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::ForeignMod(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::TraitAlias(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Reader<'_, '_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_test(attributes(item)) {
            return;
        }
        match item {
            syn::Item::Const(item) => self.item(&item.ident),
            syn::Item::Enum(item) => self.item(&item.ident),
            syn::Item::Fn(item) => self.item(&item.sig.ident),
            syn::Item::Static(item) => self.item(&item.ident),
            syn::Item::Struct(item) => self.item(&item.ident),
            syn::Item::Trait(item) => self.item(&item.ident),
            syn::Item::Type(item) => self.item(&item.ident),
            syn::Item::Union(item) => self.item(&item.ident),
            syn::Item::Macro(item) => self.item_macro(item),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        self.module().children.insert(name.clone());
        if item.content.is_some() {
            self.path.push(name);
            let file = self.file;
            self.module().file = file;
            visit::visit_item_mod(self, item);
            self.path.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        self.imports(&item.tree, Path::new(), is_public);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.name(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.tokens(call.tokens.clone());
    }
}
