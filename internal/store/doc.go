// Package store keeps everything that must survive: runs, their events, the
// attempts of their steps, bridges, definitions and agents. It is the one home
// of durability (design.md, promise 1) and the store side of the hand-off
// protocol: each transition P1 to P17 of protocol.md is one method, or one
// member of [Decision] and [Move], and is either written as a whole or refused
// and then has written nothing. Three more carry conversations with agents that
// wait for people: P18 notes a question ([MoveQuestion]), P19 an answer with the
// event that says so ([Decision].Replies), P20 that the answer may leave
// ([MoveReply]). P21 claims attempts for a bridge that knows nothing but the bus
// ([DB.HandOver]).
//
// # Durability
//
// A synced write has reached the disk when its method returns. A lazy one
// (P2, P3, P10, P17, beats) has not necessarily: it is carried by the next
// synced write of anybody, and losing it costs time, never correctness.
// Writers that come while a commit is under way share the next one, each of
// them standing for itself: one that is refused or fails leaves its neighbours
// alone.
//
// # Errors
//
// [ErrStale] says that a fenced write was refused. A [*parley.Error] with one
// of the codes not_found, conflict, idempotency_conflict, invalid or limit is
// final, too, and nothing was written. The context's error is returned only when
// nothing was written. Every other error leaves the outcome unknown: read
// again before you go on (protocol.md §4.1).
//
// # Values
//
// Inputs, outputs and documents are kept byte for byte. Event data is JSON,
// kept byte for byte but for white space around it. Times are kept in whole
// microseconds, UTC; the zero time is none.
package store
