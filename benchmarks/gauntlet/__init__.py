"""The gauntlet: posteriors that break samplers, known and generated, run by default settings."""
