// Package oldplatform has no code, only tests: Parley beside programs of the
// existing platform on one real Apache Kafka, in both directions.
//
// The other side is played by scripts in python, over kafka-python 2.0.2, the
// client that the existing platform uses: an executor (executor.py), a bridge
// with its defects (bridge.py), and whoever asks for runs and watches them
// (caller.py). They read and write records exactly as formats.md has them, and
// end with an error at whatever they read that the old programs do not take.
// audit.py reads the topics afterwards, every record and every batch.
//
// The tests need Python 3.10 with pip, and what package kafkatest needs. What
// they install is kept in the folder that PARLEY_TEST_CACHE names, else in the
// user's cache folder.
package oldplatform
