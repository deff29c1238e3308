package server

import "testing"

// TestNearHost checks that what a server listens at gives a host that this machine can
// call, and that "all addresses" is never one.
func TestNearHost(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		":8420": "127.0.0.1", "0.0.0.0:8420": "127.0.0.1", "[::]:8420": "::1", "127.0.0.2:0": "127.0.0.2",
		"[::1]:0": "::1", "localhost:0": "localhost", "10.0.0.5:8420": "10.0.0.5", "parley.internal:8420": "parley.internal",
	} {
		if got := nearHost(address); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
		if got := hosts(Config{Listen: address, Hosts: []string{"parley.example"}}); len(got) != 2 || got[1] != want {
			t.Errorf("%s: hosts %q", address, got)
		}
	}
}
