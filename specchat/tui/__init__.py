"""The terminal app. Never imports torch; talks to the engine through `specchat.engine.port.EnginePort`."""
