"""How accurate is it already? Climbs, free certificates and billed tests."""
