"""The terminal app. Never imports torch; talks to the engine through `specchat.engine.protocol.port.EnginePort`."""
