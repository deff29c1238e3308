package kafkatest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Link is the way that node From takes to node To: it connects to Listen, and
// whoever has taken [Options.Mesh] carries that to Target. Nodes are counted from 0.
type Link struct {
	From, To       int
	Listen, Target string
}

// meshNode is what another node of a mesh calls one, by a name that each of them
// resolves for itself.
func meshNode(i int) string { return "node" + strconv.Itoa(i) + ".mesh" }

// meshAddress is where a node finds another: an address of the loopback network for
// each way.
func meshAddress(from, to int) string {
	if from == to {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.1.%d.%d", from+1, to+1)
}

// mesh gives the nodes their names for each other and asks for the ways between
// them. Both what brokers copy and what controllers say to each other goes there.
func (c *Cluster) mesh() error {
	for from, n := range c.nodes {
		n.internal = freeAddress()
		n.hosts = filepath.Join(c.dir, "hosts"+strconv.Itoa(from))
		var names strings.Builder
		for to := range c.nodes {
			fmt.Fprintf(&names, "%s %s\n", meshAddress(from, to), meshNode(to))
		}
		if err := os.WriteFile(n.hosts, []byte(names.String()), 0o600); err != nil {
			return err
		}
	}
	for from := range c.nodes {
		for to, n := range c.nodes {
			if from == to {
				continue
			}
			for _, target := range []string{n.internal, n.controller} {
				_, port, err := net.SplitHostPort(target)
				if err != nil {
					return err
				}
				c.options.Mesh(Link{From: from, To: to, Listen: net.JoinHostPort(meshAddress(from, to), port), Target: target})
			}
		}
	}
	return nil
}

// named gives the name of a node in place of its address.
func named(i int, address string) string {
	_, port, _ := net.SplitHostPort(address)
	return net.JoinHostPort(meshNode(i), port)
}
