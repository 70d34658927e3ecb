//! What the user has said: of verbs itself, or of openib, for which it holds as well. What is said of verbs and makes no sense keeps
//! it out of the job. What is said of openib and does not fit here is left: then the default holds, and the user hears of it.

use std::ffi::CStr;

use crate::btl::{Host, Inherited, Kind, Left, Parameters};

/// What is said of all parameters.
pub(super) struct Given<'a, H> {
    host: &'a H,
    parameters: &'static Parameters,
    /// Of the two names of the component, the one that it has.
    component: &'static str,
    /// What is openib's, and the value here.
    inherited: Vec<Inherited>,
    /// What of that is not taken over.
    left: Vec<Left>,
}

/// Values that cannot be used; of several causes, each is one without which there would be none of the others.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused(Vec<Cause>);

#[derive(Debug, PartialEq, Eq)]
struct Cause {
    names: Vec<&'static CStr>,
    /// Behind their names.
    why: String,
}

impl Refused {
    /// Because of these parameters together.
    pub(super) fn new(names: &[&'static CStr], why: String) -> Self {
        Self(vec![Cause { names: names.to_vec(), why }])
    }

    /// Or because of these.
    pub(super) fn or(mut self, names: &[&'static CStr], why: String) -> Self {
        self.0.push(Cause { names: names.to_vec(), why });
        self
    }
}

/// Names of parameters of a component.
fn joined(component: &str, names: &[&CStr]) -> String {
    let name = |name: &&CStr| format!("btl_{component}_{}", name.to_string_lossy());
    names.iter().map(name).collect::<Vec<_>>().join(" and ")
}

/// The component that this one stands in for.
const OTHER: &str = "openib";

impl<'a, H: Host> Given<'a, H> {
    /// What is said under one of the component's names.
    pub(super) fn new(component: &'static str, parameters: &'static Parameters, host: &'a H) -> Self {
        let inherited = host.inherited();
        let mut given = Self { host, parameters, component, inherited, left: Vec::new() };
        let is_meaningless = |one: &&Inherited| one.is_meaningless;
        let meaningless: Vec<_> = given.inherited.iter().filter(is_meaningless).cloned().collect();
        for Inherited { name, text, .. } in meaningless {
            let kind = parameters.numbers.iter().find(|number| number.name == name).map(|number| number.kind);
            let what = match kind {
                Some(Kind::Bool) => "neither true nor false",
                Some(Kind::Flags) => "no list of what a byte transport can do",
                _ => "no number",
            };
            given.leave(&[name], &format!(" is {text}, which is {what}"));
        }
        given
    }

    /// What the component is called.
    pub(super) const fn component(&self) -> &'static str {
        self.component
    }

    /// The value of a number.
    pub(super) fn number(&self, name: &CStr) -> i64 {
        if self.is_left(name) { self.parameters.default(name) } else { self.parameters.number(name) }
    }

    /// The value of a text that is not empty.
    pub(super) fn text(&self, name: &CStr) -> Option<String> {
        let text = if self.is_left(name) { self.default_text(name) } else { self.host.text(name) };
        text.filter(|text| !text.trim().is_empty())
    }

    /// The values of two lists, of which only one may be given: what is said of verbs goes before its opposite of openib's.
    pub(super) fn lists(
        &self,
        include: &'static CStr,
        exclude: &'static CStr,
    ) -> Result<[Option<String>; 2], Refused> {
        match (self.text(include), self.text(exclude)) {
            (Some(list), Some(other)) => match (self.is_inherited(include), self.is_inherited(exclude)) {
                (false, true) => Ok([Some(list), None]),
                (true, false) => Ok([None, Some(other)]),
                _ => Err(Refused::new(&[include, exclude], " exclude each other".to_owned())),
            },
            both => Ok(both.into()),
        }
    }

    /// Whether the value is openib's.
    pub(super) fn is_inherited(&self, name: &CStr) -> bool {
        self.inherited.iter().any(|one| one.name == name)
    }

    /// Leaves what cannot be used of openib's.
    ///
    /// # Errors
    /// The user's own values are at fault.
    pub(super) fn mend(&mut self, Refused(causes): &Refused) -> Result<(), String> {
        let is_openibs = |cause: &&Cause| cause.names.iter().all(|name| self.is_inherited(name));
        if let Some(Cause { names, why }) = causes.iter().find(is_openibs) {
            self.leave(names, why);
            return Ok(());
        }
        let first = causes.first().map(|Cause { names, why }| joined(self.component, names) + why);
        Err(first.unwrap_or_default())
    }

    /// Openib's values that do not fit.
    pub(super) fn left(self) -> Vec<Left> {
        self.left
    }

    fn is_left(&self, name: &CStr) -> bool {
        self.left.iter().any(|left| left.names.contains(&name))
    }

    fn leave(&mut self, names: &[&'static CStr], why: &str) {
        let stays = |name: &&CStr| {
            let default = self.default_text(name).filter(|text| !text.is_empty());
            format!("{} stays {}", joined(self.component, &[name]), default.as_deref().unwrap_or("empty"))
        };
        let stay = names.iter().map(stays).collect::<Vec<_>>().join(", ");
        let line = format!("{}{why}: not taken over; {stay}", joined(OTHER, names));
        self.inherited.retain(|one| !names.contains(&one.name));
        self.left.push(Left { names: names.to_vec(), line });
    }

    /// A default as users read it.
    fn default_text(&self, name: &CStr) -> Option<String> {
        let Parameters { numbers, texts } = self.parameters;
        let number = numbers.iter().find(|number| number.name == name);
        number.map(crate::btl::Number::default_words).or_else(|| {
            let default = texts.iter().find(|text| text.name == name)?.default?;
            Some(default.to_string_lossy().into_owned())
        })
    }
}
