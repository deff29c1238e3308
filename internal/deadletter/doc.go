// Package deadletter keeps what was given up, so that nothing is lost and people
// can decide what becomes of it: tasks that have used up their policies, which
// the executor writes with the decision that lets their run fail, and records of
// the bus that can be neither handled nor answered. Each waits until somebody
// replays or discards it, or until the limits of what is kept push it out,
// oldest first.
//
// On a bus between processes a copy of each goes to the topic of dead letters,
// for tools that watch such topics; what is decided about it is decided in the
// store.
package deadletter
