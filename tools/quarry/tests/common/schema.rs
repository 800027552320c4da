// SPDX-License-Identifier: MIT
//! As much of JSON Schema as the documents' schemas use. A keyword that is not known here is a failure, so that no
//! rule is silently not checked.

use serde_json::Value;

/// What is wrong with `value`, one line each.
pub fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    check(schema, schema, value, "", &mut faults);
    faults
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    for (keyword, rule) in schema.as_object().into_iter().flatten() {
        let mut fault = |what: String| faults.push(format!("{at}: {what}"));
        match keyword.as_str() {
            "$schema" | "title" | "description" | "$defs" => {}
            "$ref" => {
                let name =
                    rule.as_str().and_then(|path| path.strip_prefix("#/$defs/")).expect("a local reference");
                assert!(root["$defs"][name].is_object(), "no definition {name}");
                check(root, &root["$defs"][name], value, at, faults);
            }
            "const" if rule != value => fault(format!("{value} is not {rule}")),
            "enum" if !rule.as_array().unwrap().contains(value) => {
                fault(format!("{value} is none of {rule}"))
            }
            "const" | "enum" => {}
            "type" => {
                let names: Vec<&str> = match rule {
                    Value::String(name) => vec![name],
                    many => many.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect(),
                };
                if !names.iter().any(|name| is(name, value)) {
                    fault(format!("{value} is no {rule}"));
                }
            }
            "required" => {
                for name in rule.as_array().unwrap().iter().filter_map(Value::as_str) {
                    if value.is_object() && value.get(name).is_none() {
                        fault(format!("has no {name}"));
                    }
                }
            }
            "properties" => {
                for (name, rule) in rule.as_object().unwrap() {
                    if let Some(member) = value.get(name) {
                        check(root, rule, member, &format!("{at}/{name}"), faults);
                    }
                }
            }
            "additionalProperties" => {
                for (name, member) in value.as_object().into_iter().flatten() {
                    if schema["properties"].get(name).is_some() {
                        continue;
                    }
                    match rule {
                        Value::Bool(false) => faults.push(format!("{at}: {name} is not in the schema")),
                        rule => check(root, rule, member, &format!("{at}/{name}"), faults),
                    }
                }
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, item, &format!("{at}/{index}"), faults);
                }
            }
            "anyOf" => {
                let fits = |rule: &Value| {
                    let mut faults = Vec::new();
                    check(root, rule, value, at, &mut faults);
                    faults.is_empty()
                };
                if !rule.as_array().unwrap().iter().any(fits) {
                    // The faults of the first say more than that none fits.
                    fault(String::from("fits none of anyOf"));
                    check(root, &rule[0], value, at, faults);
                }
            }
            other => panic!("the schema has a keyword that is not checked here: {other}"),
        }
    }
}

fn is(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("no such type: {other}"),
    }
}
