//! Values that users have given parameters: those that the host cannot read, and those that a component refuses.

use hawser::host::components;
use hawser::host::listing::{Component, Setting};

use crate::doctor::Findings;
use crate::host::Host;
use crate::{fabric, parameters, settings};

/// Whether the host reads a value as what the parameter is; an error says what it must be.
fn check(setting: &Setting, value: &str) -> Result<(), String> {
    let must = |what: &str| Err(format!("it must be {what}"));
    // An empty text is 0 for the host.
    if value.is_empty() || setting.values.iter().any(|name| name == value) {
        return Ok(());
    }
    match setting.kind {
        "int" if !setting.values.is_empty() => match value.parse::<i32>() {
            Ok(_) => Ok(()),
            Err(_) => must(&format!("one of {}", setting.values.join(", "))),
        },
        "int" if number(value).is_none_or(|number| i32::try_from(number).is_err()) => must("a whole number"),
        // Of what a transport can do there are names, too.
        "unsigned" if setting.name == "flags" && value.starts_with(|c: char| c.is_ascii_lowercase()) => {
            Ok(())
        }
        "unsigned" if number(value).is_none_or(|number| u32::try_from(number).is_err()) => {
            must("a whole number, not less than 0")
        }
        "bool" if number(value).is_none() && !TRUTHS.contains(&value.to_ascii_lowercase().as_str()) => {
            must("0 or 1, true or false")
        }
        _ => Ok(()),
    }
}

/// HOST: `mca_base_var_enum_bool`.
const TRUTHS: [&str; 10] = ["true", "t", "enabled", "yes", "y", "false", "f", "disabled", "no", "n"];

/// A number as the host reads it (`int_from_string` of `mca_base_var.c`): in base 10, 8 behind 0 or 16 behind 0x, with K, M
/// or G behind it. A text without a digit it takes for 0, which nobody means.
fn number(text: &str) -> Option<i64> {
    let (digits, shift) = match text.as_bytes().last()?.to_ascii_lowercase() {
        b'k' => (&text[..text.len() - 1], 10),
        b'm' => (&text[..text.len() - 1], 20),
        b'g' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, digits.strip_prefix('+').unwrap_or(digits)),
    };
    let (base, digits) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(rest) => (16, rest),
        None if digits.len() > 1 && digits.starts_with('0') => (8, digits),
        None => (10, digits),
    };
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let number = i64::from_str_radix(digits, base).ok()?;
    number.checked_mul(sign << shift)
}

/// What of a component's parameters is wrong, each in words.
fn all_wrong(component: &Component, host: &Host) -> Vec<String> {
    let set = |setting: &Setting| parameters::set(component, setting, &host.settings);
    let mut wrong = Vec::new();
    for setting in &component.settings {
        if setting.only.is_some_and(|release| !host.is(release)) {
            continue;
        }
        let Some(found) = set(setting) else { continue };
        let settings::Setting { name, value, place } = &found;
        if !found.is_text() {
            wrong.push(format!("{place} says {name} = {value}, which is not all text (UTF-8)"));
        } else if let Err(must) = check(setting, value.trim()) {
            wrong.push(format!("{place} says {name} = {value}; {must}"));
        }
    }
    if wrong.is_empty() {
        let value = |name: &str| set(component.settings.iter().find(|setting| setting.name == name)?);
        let text = |name: &str| value(name).map(|found| found.value);
        let range = match (component.framework, component.verify) {
            ("mtl", _) => fabric::config(Some(host)).map(drop),
            (_, Some(verify)) => {
                verify(&|name| match component.settings.iter().any(|it| it.name == name && it.kind != "text")
                {
                    true => text(name).and_then(|text| number(text.trim())).map(|number| number.to_string()),
                    false => text(name),
                })
            }
            (_, None) => Ok(()),
        };
        wrong.extend(range.err());
    }
    wrong
}

/// What is wrong with the parameters of a component, the first of it.
pub(crate) fn wrong(whole_name: &str, host: &Host) -> Option<String> {
    let component = components::list().into_iter().find(|component| component.whole_name() == whole_name)?;
    all_wrong(&component, host).into_iter().next()
}

/// Says all of it.
pub(crate) fn look(host: &Host, findings: &mut Findings) {
    for component in components::list() {
        let whole = component.whole_name();
        // These are the others of another name, and are not used unless they are asked for by it.
        if ["mtl_ofi", "btl_openib"].contains(&whole.as_str()) {
            continue;
        }
        for why in all_wrong(&component, host) {
            findings.bad(
                "settings",
                why,
                format!("mend it, or leave it out; hawser-info --params {whole} says what it may be"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_host_reads_them() {
        let read = ["12", "-1", "0x10", "010", "12k", "1M", "4294967295"].map(number);
        let numbers = [12, -1, 16, 8, 12_288, 1 << 20, 4_294_967_295];
        assert_eq!(read, numbers.map(Some));
        assert_eq!(["", "many", "12kb", "k", "1.5", "--1", "0x"].map(number), [None; 7]);
    }

    #[test]
    fn a_value_must_be_of_its_parameters_kind() {
        let list = components::list();
        let check = |whole: &str, name: &str, value: &str| {
            let component = list.iter().find(|one| one.whole_name() == whole).expect("a component");
            let setting = component.settings.iter().find(|one| one.name == name).expect("a parameter");
            check(setting, value).is_ok()
        };
        assert!(check("btl_usnic", "link", "anything"), "a text is the component's to refuse");
        assert!(check("btl_smcuda", "eager_limit", "12k") && !check("btl_smcuda", "eager_limit", "twelve"));
        assert!(check("mtl_hawser", "tag_mode", "ofi_tag_1") && !check("mtl_hawser", "tag_mode", "ofi"));
        assert!(
            check("accelerator_cuda", "copy_hook", "no") && !check("accelerator_cuda", "copy_hook", "maybe")
        );
    }
}
