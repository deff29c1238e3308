// Package oldplatform knows the PostgreSQL database of the existing platform
// (formats.md, Database): it recognises one, takes over what is in it into the
// store of Parley, and adds and removes the protocol columns of AD-6 in place.
//
// # Import
//
// [Import] reads everything in one REPEATABLE READ, read-only snapshot, so that
// the platform can go on working meanwhile, and writes record by record: agents,
// workflow definitions, runs with their steps, audit entries. It may be stopped
// and repeated at any time. A record that was imported before and has not changed
// there since is left alone; one that has changed is brought up to date, unless it
// was changed here, too. Each record is counted once in the [Report]: nothing is
// passed over in silence.
//
// A run becomes a run here with a history of its own, made of its rows: each row
// of a step is an attempt, in order, and keeps all its members. A run that had not
// ended over there cannot go on here; it is imported as FAILED with an error that
// says so, and named in a [Notice]. If it goes on over there, the next import
// brings its true end.
package oldplatform
