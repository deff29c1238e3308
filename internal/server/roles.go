package server

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/parley-project/parley"
)

// Role is one of the parts that a process may take.
type Role string

// The roles: any split of them over processes that share a PostgreSQL database,
// several of each.
const (
	// RoleAPI answers requests and starts runs.
	RoleAPI Role = "api"
	// RoleExecutor decides what follows in runs.
	RoleExecutor Role = "executor"
	// RoleBridge calls agents.
	RoleBridge Role = "bridge"
)

func (c Config) has(r Role) bool { return slices.Contains(c.Roles, r) }

// shared reports whether other processes may work on the same database.
func (c Config) shared() bool { return !c.DatabaseURL.IsZero() }

// merges reports whether answers, decisions and next claims are one write: one
// process has both ends (protocol.md §6).
func (c Config) merges() bool { return c.has(RoleExecutor) && c.has(RoleBridge) }

// check refuses what does not go together, and says what would.
func (c Config) check() error {
	for _, r := range c.Roles {
		if r != RoleAPI && r != RoleExecutor && r != RoleBridge {
			return parley.Errorf(parley.CodeInvalid, "roles: there is no role %q; the roles are api, executor and bridge", r)
		}
	}
	if err := c.checkPeers(); err != nil {
		return err
	}
	if err := c.checkAddresses(); err != nil {
		return err
	}
	if !c.shared() && !c.NoLedger {
		if missing := c.missing(); len(missing) > 0 {
			return parley.Errorf(parley.CodeInvalid,
				"roles: %s without %s needs a database that several processes share: set database.url to a postgres:// URL, or give this process all roles",
				join(c.Roles), join(missing))
		}
	}
	if c.has(RoleAPI) && c.AuthNone && !c.AuthNoneAnywhere && !ownAddress(c.Listen) {
		return parley.Errorf(parley.CodeInvalid,
			"auth.mode none on %s would let everybody who reaches it do everything: listen on 127.0.0.1, use keys, or set auth.none_anywhere as well", c.Listen)
	}
	return nil
}

// checkPeers refuses settings about the existing platform that do not go
// together.
func (c Config) checkPeers() error {
	for name, on := range map[string]bool{"executor.bridge: old": c.OldBridge, "bus.kafka.requests: on": c.Requests, "bridge.ledger: none": c.NoLedger} {
		if on && c.Kafka == nil {
			return parley.Errorf(parley.CodeInvalid, "%s needs Kafka, by which it meets the existing platform: set bus.kafka.brokers", name)
		}
	}
	switch {
	case c.OldBridge && c.has(RoleBridge):
		return parley.Errorf(parley.CodeInvalid,
			"executor.bridge: old hands tasks to a bridge of the existing platform, so this process must not take them itself: leave the role bridge out of roles")
	case c.NoLedger && (len(c.Roles) != 1 || !c.has(RoleBridge)):
		return parley.Errorf(parley.CodeInvalid, "bridge.ledger: none is for a process with the role bridge alone, not %s: set roles: [bridge]", join(c.Roles))
	case c.NoLedger && c.shared():
		return parley.Errorf(parley.CodeInvalid, "bridge.ledger: none uses no database: leave database.url out, or set bridge.ledger: store")
	}
	return nil
}

// missing are the roles that a process on its own needs besides its own.
func (c Config) missing() []Role {
	return slices.DeleteFunc([]Role{RoleAPI, RoleExecutor, RoleBridge}, func(r Role) bool {
		return c.has(r) || r == RoleBridge && c.OldBridge
	})
}

func join(roles []Role) string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return strings.Join(names, " and ")
}

func (c Config) checkAddresses() error {
	err := checkAddress("--listen", c.Listen)
	if z := c.Execution; z != nil {
		err = cmp.Or(err, checkAddress("--zone.execution.listen", z.Listen), checkAddress("--zone.execution.a2a_listen", z.A2AListen))
	}
	return err
}

// checkAddress refuses what no server could ever listen on; "" is a free port.
func checkAddress(flag, address string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port) //nolint:noctx // a port asks nobody
	}
	if err != nil {
		return parley.Errorf(parley.CodeInvalid, "%s: %q is no address to listen on: %w; write host:port, such as 127.0.0.1:8420, or :8420 for all addresses of the machine",
			flag, address, err)
	}
	return nil
}

// ownAddress reports whether only this machine reaches the address.
func ownAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
