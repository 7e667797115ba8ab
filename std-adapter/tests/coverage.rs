//! The table of C functions in the documentation names each function of the installed headers, and
//! no other one.

use std::collections::BTreeMap;
use std::fs;

const TABLE: &str = include_str!("../src/coverage.md");
const HEADERS: [&str; 2] = ["rdma_cma.h", "rdma_verbs.h"];

/// Function to header, as the table has them; `newer` ones may be missing from the headers.
struct Row {
    header: &'static str,
    newer: bool,
    how: &'static str,
    by: &'static str,
}

fn table() -> BTreeMap<&'static str, Row> {
    let mut rows = BTreeMap::new();
    let mut header = "";
    for line in TABLE.lines() {
        if let Some(heading) = line.strip_prefix("# ") {
            header = heading.trim_matches('`');
        }
        let Some(line) = line.strip_prefix("| `") else { continue };
        let cells: Vec<_> = line.trim_end_matches(" |").split(" | ").collect();
        let [first, how, by] = cells[..] else { panic!("three columns: {line}") };
        let (name, mark) = first.split_once('`').expect("a name in backticks");
        let row = Row { header, newer: mark == " (newer)", how, by };
        assert!(rows.insert(name, row).is_none(), "{name} is there twice");
    }
    rows
}

/// The functions that a header declares or defines: names at the left margin, before a bracket.
fn functions(text: &str) -> Vec<&str> {
    let mut functions = Vec::new();
    let mut rest = text;
    let mut code = String::with_capacity(text.len());
    while let Some(start) = rest.find("/*") {
        code.push_str(&rest[..start]);
        rest = rest[start..].split_once("*/").map_or("", |(_, after)| after);
    }
    code.push_str(rest);
    for line in
        code.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
    {
        let Some((before, _)) = line.split_once('(') else { continue };
        let name = before.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next();
        if let Some(name) = name.filter(|name| name.starts_with("rdma_")) {
            let at = text.find(name).expect("it came from there");
            functions.push(&text[at..at + name.len()]);
        }
    }
    functions
}

#[test]
fn the_table_says_of_each_function_how_it_is_covered() {
    let rows = table();
    assert!(rows.len() > 60, "{}", rows.len());
    for (name, row) in rows {
        assert!(HEADERS.contains(&row.header), "{name} stands under {}", row.header);
        assert!(["covered", "inside", "left out"].contains(&row.how), "{name}: {}", row.how);
        assert!(row.by.len() > 7 || row.by == "not yet", "{name} needs a reason");
    }
}

#[test]
fn the_table_has_the_functions_of_the_installed_headers_and_no_others() {
    let rows = table();
    for header in HEADERS {
        let Ok(text) = fs::read_to_string(format!("/usr/include/rdma/{header}")) else {
            println!("skipped: {header} is not installed");
            continue;
        };
        let there = functions(&text);
        assert!(there.len() > 15, "{header} was not understood: {there:?}");
        for name in &there {
            let row = rows.get(name).unwrap_or_else(|| panic!("{name} of {header} is not listed"));
            assert_eq!(row.header, header, "{name}");
        }
        for (name, row) in rows.iter().filter(|(_, row)| row.header == header && !row.newer) {
            assert!(there.contains(name), "{name} ({}) is not in {header}", row.how);
        }
    }
}

#[test]
fn a_declaration_is_found_and_a_call_is_not() {
    let header = "/* rdma_no(x) */\nint rdma_one(struct rdma_cm_id *id,\n\t\t  int rdma_two(x));\n\
                  static inline struct ibv_mr *\nrdma_three(void *addr)\n{\n\treturn rdma_four(addr);\n}\n";
    assert_eq!(functions(header), ["rdma_one", "rdma_three"]);
}
