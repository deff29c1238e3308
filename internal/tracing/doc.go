// Package tracing records spans of runs, steps and calls of agents for OpenTelemetry
// (decision 054).
//
// A run may take days and go through several processes, so no span is open anywhere: a
// span is told once it is over, with both of its times, by the process that has
// recorded the end. What it is called by must be known before, since it is sent on to
// whoever works below it. The ids of a run's and a step's span are therefore made from
// the ids of the run and the path of the step, the same in every process; that of a
// call is random, because one process makes it and tells of it.
//
// Recording is best effort and never in anybody's way: the history of a run is what
// happened, spans are what is shown of it elsewhere. Of a process that is killed the
// spans are missing that it had not delivered.
package tracing
