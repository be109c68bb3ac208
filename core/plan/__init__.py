"""make_plan(machine, config) -> Plan, and the Plan itself."""
