"""All of docexpress on one machine: an embedded Valkey, one kernel worker, one orchestrator."""
