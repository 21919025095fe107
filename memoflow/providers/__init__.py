"""Provider codecs: pure functions over plain JSON, without an SDK and without I/O."""
