package execution

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// errPage is for the log: who calls has not asked for it.
var errPage = errors.New("a page in a browser called; zones are called by programs")

// fromPage reports whether a web page has made a browser send a request. Where
// nobody is asked who they are, any page that somebody opens on this machine could
// have tasks done otherwise: browsers ask for no permission to send a body, and a
// page whose name leads to this machine (DNS rebinding) may read the answer, too.
func fromPage(r *http.Request) bool {
	if http.NewCrossOriginProtection().Check(r) != nil {
		return true
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if r.Header.Get("Origin") == "" || local == nil {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap().IsLoopback() && !loopbackHost(r.Host)
}

// loopbackHost reports whether a Host header names the loopback.
func loopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	at, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && at.Unmap().IsLoopback()
}
