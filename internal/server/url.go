package server

import (
	"net"
	"net/netip"
	"slices"
)

// URL is where the API is reached from this machine: the host that the configuration
// names, with the port that was got. A server that listens at all addresses is reached
// at the loopback one: "all" is no address that a client could name as host.
func (s *Server) URL() string {
	_, port, err := net.SplitHostPort(s.listener.Addr().String())
	if err != nil {
		return "http://" + s.listener.Addr().String()
	}
	return "http://" + net.JoinHostPort(nearHost(s.cfg.Listen), port)
}

// hosts are the names and addresses by which requests may call the server: those of the
// configuration, and the one that it listens at, by which the commands on this machine
// call it.
func hosts(c Config) []string { return append(slices.Clone(c.Hosts), nearHost(c.Listen)) }

// nearHost is the host at which this machine reaches a server that listens at address.
func nearHost(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return "127.0.0.1"
	}
	switch ip, err := netip.ParseAddr(host); {
	case err != nil || !ip.IsUnspecified():
		return host
	case ip.Is6():
		return "::1"
	default:
		return "127.0.0.1"
	}
}
