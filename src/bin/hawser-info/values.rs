//! Values that users have given parameters: those that the host cannot read, and those that a component refuses.

use hawser::btl::{Left, truth};
use hawser::host::components;
use hawser::host::listing::{Component, Setting};
use hawser::mtl::ofi::parameters::{INTEGERS, read};

use crate::doctor::Findings;
use crate::host::Host;
use crate::{fabric, parameters, settings};

/// A value that is not what it must be.
struct Unfit {
    must: String,
    /// What the host takes it for; `None`: it ignores it, and goes on.
    taken: Option<i128>,
}

/// Whether a value is what the parameter must be.
fn check(setting: &Setting, value: &str, host: &Host) -> Result<(), Unfit> {
    let ignored = |must: &str| Err(Unfit { must: format!("it must be {must}"), taken: None });
    let fits = |value: i128| match setting.kind {
        "int" => i32::try_from(value).is_ok(),
        _ => u32::try_from(value).is_ok(),
    };
    let number = number(value);
    let must = if setting.kind == "int" { "a whole number" } else { "a whole number, not less than 0" };
    match setting.kind {
        "bool" if truth(value).is_none() => ignored("0 or 1, true or false"),
        "int" if !setting.values.is_empty() && !value.is_empty() => {
            let integer = INTEGERS.iter().find(|integer| integer.name.to_bytes() == setting.name.as_bytes());
            match integer.is_some_and(|integer| value.trim() == value && read(integer.names, value).is_some())
            {
                true => Ok(()),
                false => ignored(&format!("one of {}", setting.values.join(", "))),
            }
        }
        // The names are those of 4.1.
        "unsigned" if setting.name == "flags" && !value.is_empty() => {
            match !host.is("4.") || are_flags(value) {
                true => Ok(()),
                false => ignored(&format!(
                    "numbers or names of {}, with commas between",
                    FLAGS.map(|(name, _)| name).join(", ")
                )),
            }
        }
        "int" | "unsigned" if !fits(number.value) => ignored(must),
        "int" | "unsigned" if !number.is_whole => {
            Err(Unfit { must: format!("it must be {must}"), taken: Some(number.value) })
        }
        _ => Ok(()),
    }
}

/// HOST: `mca_btl_base_flag_enum_flags` of 4.1.
const FLAGS: [(&str, i128); 17] = [
    ("send", 1),
    ("put", 1 << 1),
    ("get", 1 << 2),
    ("inplace", 1 << 3),
    ("need-ack", 1 << 4),
    ("need-csum", 1 << 5),
    ("hetero-rdma", 1 << 8),
    ("failover", 1 << 9),
    ("cuda-put", 1 << 10),
    ("cuda-get", 1 << 11),
    ("cuda-async-send", 1 << 12),
    ("cuda-async-recv", 1 << 13),
    ("signaled", 1 << 14),
    ("atomics", 1 << 15),
    ("fetching-atomics", 1 << 16),
    ("static", 1 << 17),
    ("rdma-flush", 1 << 19),
];

fn are_flags(text: &str) -> bool {
    let all = FLAGS.iter().fold(0, |all, (_, flag)| all | flag);
    text.split(',').all(|word| match number(word) {
        number if number.is_whole => number.value >= 0 && number.value & !all == 0,
        _ => FLAGS.iter().any(|(name, _)| name.eq_ignore_ascii_case(word)),
    })
}

/// A text as the host reads it where it wants a number.
#[derive(Debug, PartialEq, Eq)]
struct Number {
    value: i128,
    /// Whether all of it is one.
    is_whole: bool,
}

/// A number as the host reads it (`int_from_string` of `mca_base_var.c`): in base 10, 8 behind 0 or 16 behind 0x, with K, M
/// or G behind it. What follows it leaves unread, and takes a text without a digit for 0.
fn number(text: &str) -> Number {
    let text = text.trim();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (base, digits) = match hexadecimal.filter(|rest| rest.starts_with(|c: char| c.is_ascii_hexdigit())) {
        Some(rest) => (16, rest),
        None if digits.starts_with('0') => (8, digits),
        None => (10, digits),
    };
    let end = digits.find(|c: char| !c.is_digit(base)).unwrap_or(digits.len());
    let (digits, behind) = digits.split_at(end);
    // More than it can hold is the most that it can.
    let most = i128::from(u64::MAX);
    let value = if digits.is_empty() {
        0
    } else {
        i128::from_str_radix(digits, base).map_or(most, |it| it.min(most))
    };
    let unit = behind.trim_end_matches(['b', 'B']).to_ascii_lowercase();
    let shift = match behind.as_bytes().first() {
        Some(b'k' | b'K') => 10,
        Some(b'm' | b'M') => 20,
        Some(b'g' | b'G') => 30,
        _ => 0,
    };
    let is_whole = !digits.is_empty() && (behind.is_empty() || ["k", "m", "g"].contains(&unit.as_str()));
    Number { value: (sign * value) << shift, is_whole }
}

/// What the host takes a text for where it wants an `int`; `None`: it ignores it.
pub(crate) fn integer(text: &str) -> Option<i32> {
    i32::try_from(number(text).value).ok()
}

/// Something that is wrong, in words, and whether the host ignores it.
struct Wrong {
    what: String,
    is_ignored: bool,
}

/// What of a component's parameters is wrong.
fn all_wrong(component: &Component, host: &Host) -> Vec<Wrong> {
    let set = |setting: &Setting| parameters::set(component, setting, &host.settings);
    let mut wrong = Vec::new();
    let mut ignored = Vec::new();
    for setting in &component.settings {
        if setting.only.is_some_and(|release| !host.is(release)) {
            continue;
        }
        let Some(found) = set(setting) else { continue };
        // The component looks at what is said of another one.
        if parameters::is_inherited(component, &found) {
            continue;
        }
        let settings::Setting { name, value, place } = &found;
        let told = format!("{place} says {name} = {value}");
        if !found.is_text() {
            wrong.push(Wrong { what: format!("{told}, which is not all text (UTF-8)"), is_ignored: false });
        } else if let Err(Unfit { must, taken }) = check(setting, value, host) {
            let effect = match taken {
                Some(number) => format!("Open MPI takes it for {number}"),
                None => {
                    ignored.push(&setting.name);
                    "Open MPI ignores it".to_owned()
                }
            };
            wrong.push(Wrong { what: format!("{told}; {must}; {effect}"), is_ignored: taken.is_none() });
        }
    }
    if wrong.iter().all(|one| one.is_ignored) {
        let range = match component.framework {
            "mtl" => fabric::config(Some(host)).map(drop),
            _ => verified(component, &host.settings, &ignored).map(drop),
        };
        wrong.extend(range.err().map(|what| Wrong { what, is_ignored: false }));
    }
    wrong
}

/// What a component says of what is set, but for what the host ignores: what of another one's it leaves, or what it refuses.
fn verified(component: &Component, folder: &str, ignored: &[&String]) -> Result<Vec<Left>, String> {
    let Some(verify) = component.verify else { return Ok(Vec::new()) };
    let value = |name: &str, is_wanted: &dyn Fn(&settings::Setting) -> bool| {
        let setting = component.settings.iter().find(|setting| setting.name == name)?;
        let found = parameters::set(component, setting, folder).filter(is_wanted)?;
        Some((setting, found.value))
    };
    let own = |name: &str| {
        let (setting, text) = value(name, &|found| !parameters::is_inherited(component, found))?;
        let text = match setting.kind {
            "text" => text,
            "bool" => i32::from(truth(&text) == Some(true)).to_string(),
            _ => number(&text).value.to_string(),
        };
        (!ignored.contains(&&setting.name)).then_some(text)
    };
    let others = |name: &str| {
        let is_its = |found: &settings::Setting| parameters::is_inherited(component, found);
        value(name, &is_its).map(|(_, text)| unquoted(&text).to_owned())
    };
    verify(&own, &others)
}

/// What stands between quotes, which go where a value is inherited.
fn unquoted(text: &str) -> &str {
    let inner = |quote| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

/// What is said of the component that this one stands in for, and does not fit.
pub(crate) fn left(component: &Component, folder: &str) -> Vec<Left> {
    match &component.predecessor {
        Some(_) => verified(component, folder, &[]).unwrap_or_default(),
        None => Vec::new(),
    }
}

/// What keeps a component from being used as its parameters are set, the first of it.
pub(crate) fn wrong(whole_name: &str, host: &Host) -> Option<String> {
    let component = components::list().into_iter().find(|component| component.whole_name() == whole_name)?;
    all_wrong(&component, host).into_iter().find(|one| !one.is_ignored).map(|one| one.what)
}

/// Says all of it.
pub(crate) fn look(host: &Host, findings: &mut Findings) {
    for component in components::list() {
        let whole = component.whole_name();
        // These are the others of another name, and are not used unless they are asked for by it.
        if ["mtl_ofi", "btl_openib"].contains(&whole.as_str()) {
            continue;
        }
        for Left { line, .. } in left(&component, &host.settings) {
            findings.note("settings", line, format!("hawser-info --params {whole} says what it may be"));
        }
        for Wrong { what, .. } in all_wrong(&component, host) {
            findings.bad(
                "settings",
                what,
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
        let whole = |value| Number { value, is_whole: true };
        let read = ["12", " -1", "0x10", "010", "12k", "1M", "12kb", "4294967295"].map(number);
        assert_eq!(read, [12, -1, 16, 8, 12_288, 1 << 20, 12_288, 4_294_967_295].map(whole));
        let part = |value| Number { value, is_whole: false };
        let read = ["", "many", "k", "1.5", "--1", "0x", "7 8", "\"4\"", "4k # words"].map(number);
        assert_eq!(read, [0, 0, 0, 1, 0, 0, 7, 0, 4096].map(part));
    }

    #[test]
    fn a_value_must_be_of_its_parameters_kind() {
        let list = components::list();
        let host = Host::of_release("4.1.4");
        // What the host takes an unfit value for.
        let check = |whole: &str, name: &str, value: &str| {
            let component = list.iter().find(|one| one.whole_name() == whole).expect("a component");
            let setting = component.settings.iter().find(|one| one.name == name).expect("a parameter");
            check(setting, value, &host).map_err(|unfit| unfit.taken)
        };
        let ignored = Err(None);
        assert_eq!(check("btl_usnic", "link", "anything"), Ok(()), "a text is the component's to refuse");
        for (value, what) in [
            ("12k", Ok(())),
            ("12kb", Ok(())),
            ("twelve", Err(Some(0))),
            ("", Err(Some(0))),
            ("4096 # bytes", Err(Some(4096))),
            ("8g", ignored),
            ("-1", Ok(())),
        ] {
            assert_eq!(check("btl_smcuda", "eager_limit", value), what, "{value}");
        }
        assert_eq!(check("btl_usnic", "latency", "-1"), ignored);
        for (value, what) in
            [("ofi_tag_1", Ok(())), ("OFI_Tag_1", Ok(())), ("2", Ok(())), ("ofi", ignored), ("9", ignored)]
        {
            assert_eq!(check("mtl_hawser", "tag_mode", value), what, "{value}");
        }
        for (value, what) in
            [("no", Ok(())), ("TRUE", ignored), ("1", Ok(())), ("maybe", ignored), ("1k", ignored)]
        {
            assert_eq!(check("accelerator_cuda", "copy_hook", value), what, "{value}");
            assert_eq!(check("btl_usnic", "connectivity_check", value), what, "{value}");
        }
        for (value, what) in
            [("send,PUT", Ok(())), ("3", Ok(())), ("send,put,bogus", ignored), ("999999", ignored)]
        {
            assert_eq!(check("btl_usnic", "flags", value), what, "{value}");
        }
    }
}
