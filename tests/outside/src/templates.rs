//! The crates of `examples/templates`.

#[path = "../../../examples/templates/attention/src/lib.rs"]
pub mod attention;
#[path = "../../../examples/templates/elementwise/src/lib.rs"]
pub mod elementwise;
#[path = "../../../examples/templates/gemm/src/lib.rs"]
pub mod gemm;
#[path = "../../../examples/templates/reduction/src/lib.rs"]
pub mod reduction;

/// Each template is a crate that can be copied: it depends on this version of the facade, and has a
/// page.
#[test]
fn templates_are_crates_with_a_page() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/templates");
    let version = env!("CARGO_PKG_VERSION").rsplit_once('.').map_or("", |(minor, _)| minor);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the templates") {
        let path = entry.expect("a template").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let read = |file: &str| {
            std::fs::read_to_string(path.join(file)).unwrap_or_else(|error| panic!("{name}/{file}: {error}"))
        };
        let manifest = read("Cargo.toml");
        assert!(manifest.contains("name = \"{{project-name}}\""), "{name}");
        assert_eq!(manifest.matches(&format!("tilewright = {{ version = \"{version}\"")).count(), 2, "{name}");
        let page = read("README.md");
        assert!(page.lines().count() <= 30 && page.contains(&format!("examples/templates/{name}")), "{name}");
        names.push(name);
    }
    names.sort();
    assert_eq!(names, ["attention", "elementwise", "gemm", "reduction"]);
}
