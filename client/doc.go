// Package client talks to a Parley server over its REST API.
//
// A [Client] starts, watches, cancels and retries runs, deploys workflows and
// keeps the register of agents:
//
//	c, err := client.New(client.Options{URL: "http://127.0.0.1:8420", Key: key})
//	run, err := c.StartRun(ctx, parley.StartRequest{Workflow: "greet", Input: input})
//	for event, err := range c.Watch(ctx, run.ID, client.WatchOptions{}) {
//		…
//	}
//	run, err = c.Run(ctx, run.ID)
//
// # Values
//
// Inputs and outputs are JSON bytes and stay what they are: member order and
// big numbers pass unchanged in both directions.
//
// # Errors
//
// What the server refused is an [*Error], found by [errors.As]. A server that
// could not be reached, or that broke the connection before it answered, is an
// [*UnreachableError], for which errors.Is(err, [ErrUnreachable]) holds. Errors
// of the context come back as they are. A client never repeats a request by
// itself, except for [Client.Watch], which only reads. To repeat a start that
// broke off, give it an idempotency key.
//
// # Limits
//
// A response body is read up to [MaxBody] bytes, or what the options say; one that is
// longer is a [*TooLongError] and nothing of it is used. Redirects are not followed, so that the key goes
// to the server that it was meant for and to no other.
//
// # Concurrency
//
// A Client may be used by any number of goroutines. It owns no goroutine
// between calls and needs no closing.
package client
