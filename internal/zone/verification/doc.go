// Package verification is the Verification Zone (ZN-7): it takes the questions
// that people ask in Slack, has the other zone work on them, and posts the answers
// in their threads, each exactly once.
//
// # What is promised
//
// A question is a row of the store before Slack hears that it was taken. From
// then on an answer or a clear text about the failure comes to its thread, however
// often this process or the other zone dies in between; at most one. What could
// have happened already is looked up before it is done again: a request that may
// have reached the other zone by its id, a message that may have been posted by
// its metadata. The one case in which a person hears nothing is a thread that
// Slack does not let us post to; that is a line in the log and a metric.
//
// # Secrets
//
// The tokens are in no row, log line, metric or error, and in no text that people
// see. The bot token goes to the other zone with zone.ProfileStrict only. What
// people write is in the row until it is answered, and in no log line.
//
// # Who sees what
//
// People see the answer, or a text of [Texts] that names no part of the machinery.
// Errors of the other zone and of Slack are told by class and code only.
package verification
