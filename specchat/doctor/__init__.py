"""What specchat finds on this machine: each check gives findings in words. Nothing is changed, no network is used."""
