//! Nodes, links and faults in virtual time.
