from expost.audit import AuditEntry


def test_an_entry_covers_its_name_and_what_it_also_attacks():
    entry = AuditEntry("expost.stats.Mean", pairs=lambda: (), also=("expost.stats.mean",))

    assert entry.names == {"expost.stats.Mean", "expost.stats.mean"}
    assert entry.short_name == "stats.Mean"
    assert tuple(entry.laws()) == ()
