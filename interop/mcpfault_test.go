package interop

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/parley-project/parley/jsonrpc"
)

// stdioServers are the SDKs' servers over standard input and output.
func stdioServers() []mcpCase {
	var all []mcpCase
	for _, c := range mcpCases() {
		if c.transport == "stdio" {
			all = append(all, c)
		}
	}
	return all
}

// TestMCPClientGarbage has servers print what is no message. Our client says so,
// as JSON-RPC 2.0 section 5 has it, and goes on.
func TestMCPClientGarbage(t *testing.T) {
	t.Parallel()
	for _, c := range stdioServers() {
		t.Run(c.name+"/"+c.version, func(t *testing.T) {
			parallel(t)
			client, process := c.open(t)
			if _, err := client.connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, garbage := range []string{"a word to standard output\n", "{\"half\":\n", "{\"jsonrpc\":\"2.0\"}\n"} {
				_, _, err := client.tool(t.Context(), "print", map[string]any{"text": garbage})
				if c.name == "mcppeer" {
					dies(t, client, process)
					return
				}
				if err != nil {
					t.Fatalf("%q: %v", garbage, err)
				}
				if sum, err := client.sum(t.Context(), 1, 2); err != nil || sum != 3 {
					t.Fatalf("after %q: %v, %v", garbage, sum, err)
				}
			}
		})
	}
}

// dies: the Go SDK's server takes an error whose id is null, which is what it
// is told about its garbage, for an invalid request and exits. (Its own
// garbage kills its client too.) Our calls say so.
func dies(t *testing.T, client *mcpClient, process *process) {
	t.Helper()
	eventually(t, func() (bool, string) {
		_, err := client.sum(t.Context(), 1, 2)
		_, ok := errors.AsType[*jsonrpc.ExitError](err)
		return ok, fmt.Sprint(err)
	})
	if code := process.code(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
}

// TestMCPClientPeerExits ends servers under calls of ours.
func TestMCPClientPeerExits(t *testing.T) {
	t.Parallel()
	for _, c := range stdioServers() {
		t.Run(c.name+"/"+c.version, func(t *testing.T) {
			parallel(t)
			client, process := c.open(t)
			if _, err := client.connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			errs := make(chan error, 11)
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					_, _, err := client.tool(t.Context(), "wait", nil)
					errs <- err
				})
			}
			client.seen(t, "waiting 10, cancelled 0")
			_, _, err := client.tool(t.Context(), "exit", nil)
			errs <- err
			all.Wait()
			for range 11 {
				err := <-errs
				if e, ok := errors.AsType[*jsonrpc.ConnError](err); !ok || !e.Recoverable {
					t.Errorf("%v is no recoverable ConnError", err)
				}
				if e, ok := errors.AsType[*jsonrpc.ExitError](err); !ok || e.Command == "" {
					t.Errorf("%v does not tell how the program ended", err)
				}
			}
			if code := process.code(t); code != 3 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}
