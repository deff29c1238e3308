package rpchttp

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// admit refuses requests that a foreign page may have made a browser send.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	if !s.hostFits(r) {
		refuse(w, http.StatusForbidden, invalid("this host name is not served here; if it should be, add it to AllowedHosts"))
		return false
	}
	origin := r.Header["Origin"]
	if len(origin) == 0 {
		return true
	}
	if !slices.Contains(s.cfg.AllowedOrigins, "*") && !slices.Contains(s.cfg.AllowedOrigins, origin[0]) {
		refuse(w, http.StatusForbidden, invalid("pages of this origin may not call; if they should, add it to AllowedOrigins"))
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin[0])
	h.Add("Vary", "Origin")
	expose := "X-Correlation-Id"
	if s.sessions != nil {
		expose += ", " + s.sessions.cfg.Header
	}
	h.Set("Access-Control-Expose-Headers", expose)
	return true
}

// preflight answers the question that browsers ask before they let a page of
// an allowed origin call.
func (s *Server) preflight(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", s.methods())
	allow := "Content-Type, Accept, Authorization, X-Correlation-Id, Traceparent, Tracestate, Last-Event-Id"
	if s.sessions != nil {
		allow += ", " + s.sessions.cfg.Header
	}
	h.Set("Access-Control-Allow-Headers", allow)
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// hostFits checks the Host header. A value that was found good before, which
// is nearly every one, is not looked at again.
func (s *Server) hostFits(r *http.Request) bool {
	if len(s.cfg.AllowedHosts) == 0 && !onLoopback(r) {
		return true
	}
	if seen := s.hostSeen.Load(); seen != nil && *seen == r.Host {
		return true
	}
	if !s.hostAllowed(r.Host) {
		return false
	}
	host := r.Host
	s.hostSeen.Store(&host)
	return true
}

func (s *Server) hostAllowed(hostPort string) bool {
	host := hostPort
	if h, _, err := net.SplitHostPort(hostPort); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if len(s.cfg.AllowedHosts) == 0 {
		ip := net.ParseIP(host)
		return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
	}
	return slices.ContainsFunc(s.cfg.AllowedHosts, func(allowed string) bool {
		return allowed == "*" || strings.EqualFold(allowed, hostPort) || strings.EqualFold(strings.Trim(allowed, "[]"), host)
	})
}

// onLoopback says whether the request came to a loopback address.
func onLoopback(r *http.Request) bool {
	switch a := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	default:
		return false
	}
}

// fits refuses a POST whose body is not JSON, or whose sender does not take
// JSON.
func fits(w http.ResponseWriter, r *http.Request) bool {
	kind := r.Header["Content-Type"]
	switch {
	case len(kind) == 0 || !isJSON(mediaType(kind[0])) || !utf8Charset(kind[0]):
		w.Header().Set("Accept-Post", jsonType)
		refuse(w, http.StatusUnsupportedMediaType, invalid("the message has to be JSON in UTF-8, sent as Content-Type "+jsonType))
		return false
	case r.Header["Content-Encoding"] != nil && !strings.EqualFold(r.Header.Get("Content-Encoding"), "identity"):
		w.Header().Set("Accept-Encoding", "identity")
		refuse(w, http.StatusUnsupportedMediaType, invalid("compressed messages are not taken; send it without Content-Encoding"))
		return false
	case !accepts(r.Header["Accept"], jsonType):
		refuse(w, http.StatusNotAcceptable, invalid("the answer is "+jsonType+", which the Accept header has to allow"))
		return false
	}
	return true
}

// utf8Charset tolerates the charset parameter, which JSON does not have, as
// long as it tells the truth.
func utf8Charset(contentType string) bool {
	if contentType == jsonType {
		return true
	}
	_, params, _ := strings.Cut(strings.ToLower(contentType), ";")
	_, charset, ok := strings.Cut(params, "charset=")
	if !ok {
		return true
	}
	charset, _, _ = strings.Cut(charset, ";")
	charset = strings.Trim(charset, " \t\"")
	return charset == "utf-8" || charset == "utf8" || charset == "us-ascii"
}

// accepts says whether an Accept header allows the type kind. No header allows
// everything.
func accepts(header []string, kind string) bool {
	if len(header) == 0 {
		return true
	}
	family, _, _ := strings.Cut(kind, "/")
	for _, line := range header {
		for len(line) > 0 {
			var entry string
			entry, line, _ = strings.Cut(line, ",")
			entry, params, _ := strings.Cut(entry, ";")
			entry = strings.TrimSpace(entry)
			if refusedByWeight(params) {
				continue
			}
			if strings.EqualFold(entry, kind) || entry == "*/*" || entry == family+"/*" {
				return true
			}
		}
	}
	return false
}

// refusedByWeight says whether the parameters of an entry are "q=0".
func refusedByWeight(params string) bool {
	_, q, ok := strings.Cut(params, "q=")
	q = strings.TrimSpace(q)
	return ok && strings.Trim(q, "0.") == "" && q != ""
}
