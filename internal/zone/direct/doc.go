// Package direct carries requests of the zone connection over plain HTTPS: one
// POST to one URL, the bytes as they are, and the response's bytes back.
//
// It says of a request that failed whether the other zone can have begun with it,
// and repeats it only where it cannot. Two things decide: whether a connection was
// had, and whether the whole body was taken for sending; net/http writes the
// header before it takes the first byte, so that a connection that ended while
// nobody used it is found out in time. Answers decide by their status, see
// [Transport.Call].
//
// net/http would repeat requests with an Idempotency-Key over a connection that
// the server closed meanwhile, even if they may have arrived. It never does here,
// since it is not given the means to read a body twice.
//
// The parts are of use to other transports over HTTP: [Wire] sends a request and
// knows how far it came, [ReadAnswer] reads with a limit, [Judge] classifies,
// [Retry] repeats.
package direct
