"""Generated dialogues, one file a topic, and the mixture that the demo pair is trained on."""
