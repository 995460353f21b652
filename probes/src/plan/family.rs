//! Classes whose requests use the connections of another class.

use super::{Class, PaceOf, Plan};

impl Plan {
    /// The index of the class whose connections carry a class's requests, mostly its own.
    pub fn owner_of(&self, index: usize) -> usize {
        let name = self.classes[index].connections_of.as_deref();
        name.and_then(|name| self.place_of(name)).unwrap_or(index)
    }

    /// The index of the class with a name.
    pub fn place_of(&self, name: &str) -> Option<usize> {
        self.classes.iter().position(|class| class.name == name)
    }

    /// Checks that a class can use the connections and streams that it names.
    pub(super) fn check_family(&self, class: &Class) -> Result<(), String> {
        let family = class.connections_of.as_ref().unwrap_or(&class.name);
        let tree = class.priority.as_ref().and_then(|it| it.tree.as_ref());
        for name in tree.iter().flat_map(|it| &it.depends_on) {
            let place = self.place_of(name).map(|it| &self.classes[it]);
            let theirs = place.map(|it| it.connections_of.as_ref().unwrap_or(&it.name));
            if theirs != Some(family) {
                return Err(format!(
                    "has priority.depends_on {name:?}, which is not a class on the same connections"
                ));
            }
        }
        let Some(name) = &class.connections_of else {
            return Ok(());
        };
        let owner = self.place_of(name).map(|it| &self.classes[it]);
        let owner = owner.filter(|it| it.connections_of.is_none() && it.speaks.has_tree());
        let Some(owner) = owner else {
            return Err(format!(
                "has connections_of {name:?}, which is not an http2 class with its own connections"
            ));
        };
        let what = if class.speaks != owner.speaks {
            "differs in its http2 settings from"
        } else if class.target.is_some() {
            "has its own target, and not that of"
        } else if class.connections != owner.connections {
            "differs in its number of connections from"
        } else if class.read_pace_of == PaceOf::Connection {
            "has read_pace_of connection, but shares the connections of"
        } else {
            return Ok(());
        };
        Err(format!("{what} class {name:?}, which owns its connections"))
    }
}
