package bridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/parley-project/parley"
)

// TestEgressPolicy is the table of addresses, with TLS and without.
func TestEgressPolicy(t *testing.T) {
	onPremises := Egress{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.2.3/16"), netip.MustParsePrefix("fd00::/8")}}
	cases := []struct {
		egress  Egress
		address string
		plain   bool
		secure  bool
	}{
		{Egress{}, "93.184.216.34:443", false, true},
		{Egress{}, "93.184.216.34:80", false, true},
		{Egress{}, "93.184.216.34:8443", false, true},
		{Egress{}, "93.184.216.34:22", false, false},
		{Egress{}, "93.184.216.34:25", false, false},
		{Egress{}, "[2606:2800:220:1::1]:443", false, true},
		{Egress{}, "127.0.0.1:8080", false, false},
		{Egress{}, "[::1]:8080", false, false},
		{Egress{}, "[::ffff:127.0.0.1]:8080", false, false},
		{Egress{}, "0.0.0.0:8080", false, false},
		{Egress{}, "10.1.2.3:443", false, false},
		{Egress{}, "172.16.0.1:443", false, false},
		{Egress{}, "192.168.1.1:443", false, false},
		{Egress{}, "169.254.169.254:443", false, false},
		{Egress{}, "100.100.100.200:443", false, false},
		{Egress{}, "192.0.0.192:443", false, false},
		{Egress{}, "168.63.129.16:443", false, false},
		{Egress{}, "198.18.0.1:443", false, false},
		{Egress{}, "224.0.0.1:443", false, false},
		{Egress{}, "240.0.0.1:443", false, false},
		{Egress{}, "[64:ff9b::7f00:1]:443", false, false},
		{Egress{}, "[2002:7f00:1::]:443", false, false},
		{Egress{}, "[fe80::1%eth0]:443", false, false},
		{Egress{}, "[fd00::1]:443", false, false},
		{Egress{}, "0.1.2.3:443", false, false},
		{Egress{}, "100.64.0.1:443", false, false},
		{Egress{}, "100.127.255.254:443", false, false},
		{Egress{}, "192.0.2.1:443", false, false},
		{Egress{}, "192.88.99.1:443", false, false},
		{Egress{}, "198.19.255.254:443", false, false},
		{Egress{}, "198.51.100.1:443", false, false},
		{Egress{}, "203.0.113.1:443", false, false},
		{Egress{}, "255.255.255.255:443", false, false},
		{Egress{}, "169.254.170.2:443", false, false},
		{Egress{}, "[fd00:ec2::254]:443", false, false},
		{Egress{}, "[fd20:ce::254]:443", false, false},
		{Egress{}, "[2001:db8::1]:443", false, false},
		{Egress{}, "[100::1]:443", false, false},
		{Egress{}, "[::ffff:169.254.169.254]:443", false, false},
		{Egress{Loopback: true}, "169.254.169.254:80", false, false},
		{Egress{Loopback: true}, "192.168.0.1:443", false, false},
		{Egress{Loopback: true}, "[fd00::1]:443", false, false},
		{Egress{Loopback: true}, "0.0.0.0:8080", false, false},
		{Egress{Loopback: true}, "127.0.0.1:22", true, true},
		{Egress{Loopback: true}, "[::1]:8080", true, true},
		{Egress{Loopback: true}, "[::ffff:127.0.0.1]:8080", true, true},
		{Egress{Loopback: true}, "10.0.0.1:443", false, false},
		{onPremises, "10.1.9.9:22", true, true},
		{onPremises, "[fd00::1]:80", true, true},
		{onPremises, "10.2.0.1:443", false, false},
		{onPremises, "127.0.0.1:443", false, false},
		{Egress{}, "nonsense", false, false},
	}
	for _, c := range cases {
		network := "tcp4"
		if strings.HasPrefix(c.address, "[") {
			network = "tcp6"
		}
		for _, secure := range []bool{false, true} {
			err := c.egress.dialer(secure).ControlContext(t.Context(), network, c.address, nil)
			want := c.plain
			if secure {
				want = c.secure
			}
			if (err == nil) != want {
				t.Errorf("%s with %+v, TLS %v: %v", c.address, c.egress, secure, err)
			}
			if err != nil && c.address != "nonsense" && !strings.Contains(err.Error(), "unless egress.allow (of parley dev: --egress-allow) has its range") {
				t.Errorf("%s with TLS %v: %v does not say how it is allowed", c.address, secure, err)
			}
		}
	}
}

// TestExchangeNoProxy: net/http reads the proxy of the environment once in a
// process, so only its absence can be looked at.
func TestExchangeNoProxy(t *testing.T) {
	x := NewExchange(ExchangeConfig{})
	for _, scheme := range []string{"http", "https"} {
		if x.pools.of(poolKey{scheme: scheme, host: "agent.test"}, nil).Proxy != nil {
			t.Error("the proxy of the environment would be used for " + scheme)
		}
	}
}

// TestKeepAlive: connections to agents are held to being alive, in seconds and
// not in hours.
func TestKeepAlive(t *testing.T) {
	k := Egress{}.dialer(true).KeepAliveConfig
	if gone := k.Idle + time.Duration(k.Count)*k.Interval; !k.Enable || gone > time.Minute || gone == 0 {
		t.Errorf("%+v: an agent whose machine has gone is noticed after %s", k, gone)
	}
}

// TestConnPoolShares: a host has as many idle connections as it had calls, but
// never the last places.
func TestConnPoolShares(t *testing.T) {
	p := newConnPool(time.Minute, 100, time.Now)
	defer p.closeIdle(time.Now().Add(time.Minute))
	put := func(host string, n int) {
		for range n {
			ours, theirs := net.Pipe()
			_ = theirs.Close()
			c := newDirectConn(ours, host)
			c.until = time.Now().Add(time.Hour)
			_ = p.put(c)
		}
	}
	for _, step := range []struct {
		host    string
		n, want int
	}{{"a", 200, 50}, {"b", 10, 10}, {"c", 100, 20}, {"b", 1, 11}} {
		put(step.host, step.n)
		if got := len(p.idle[step.host]); got != step.want {
			t.Errorf("%s keeps %d connections of %d, want %d", step.host, got, step.n, step.want)
		}
	}
	if p.count > p.most {
		t.Errorf("%d connections are kept", p.count)
	}
}

// TestRedact: a secret in any of its spellings is gone, also where the text is
// cut.
func TestRedact(t *testing.T) {
	agent := parley.Agent{Credential: parley.NewSecret([]byte(`pa"ss\word`))}
	cases := []struct {
		text  string
		limit int
		want  string
	}{
		{`say pa"ss\word now`, 100, "say [redacted] now"},
		{`{"t":"pa\"ss\\word"}`, 100, `{"t":"[redacted]"}`},
		{`pa"ss\wordpa"ss\word`, 100, "[redacted][redacted]"},
		{`12345 pa"ss\word`, 8, "12345 [redacted]… (cut)"},
		{`pa"ss\word 12345`, 3, "[redacted]… (cut)"},
		{"nothing", 100, "nothing"},
		{"grün", 3, "gr… (cut)"},
		{"a\xffb", 100, "a\uFFFDb"},
	}
	for _, c := range cases {
		if got := Redact(agent, []byte(c.text), c.limit); got != c.want {
			t.Errorf("Redact(%q, %d) = %q, want %q", c.text, c.limit, got, c.want)
		}
	}
}

// TestRedactOverlapping: of a secret that begins like another one, or within it, nothing
// is left.
func TestRedactOverlapping(t *testing.T) {
	for text, want := range map[string]string{
		"a k3y-one-long b":         "a [redacted] b",
		"a k3y-one b k3y-one-long": "a [redacted] b [redacted]",
		"a one-long-tail b":        "a [redacted] b",
		"a k3y-one+two b":          "a [redacted] b",
		"a k3y-one-long-tail-on b": "a [redacted]-on b",
		"a k3y-one-lon b":          "a [redacted]-lon b",
		"a k3y-onek3y-one b":       "a [redacted][redacted] b",
	} {
		secrets := [][]byte{[]byte("k3y-one"), []byte("k3y-one+two"), []byte("one-long"), []byte("k3y-one-long"), []byte("long-tail")}
		if got := redact(secrets, []byte(text), 100); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// TestRedactOften: an agent that repeats one of its credentials a million times costs
// no more than the length of what it says, which is less than a second. To look for
// each anew takes more than a minute.
func TestRedactOften(t *testing.T) {
	const secret, times = "c4nary-c4nary ", 1_000_000
	agent := parley.Agent{
		Auth: parley.Auth{Type: parley.AuthBasic, User: "u"}, Credential: parley.NewSecret([]byte(strings.TrimSpace(secret))),
	}
	said := []byte(`"` + strings.Repeat(secret, times) + `"`)
	want := `"` + strings.Repeat("[redacted] ", times) + `"`
	var took []time.Duration
	for range 3 { // one will do: a machine that is busy can but take longer
		begun := time.Now()
		out := redactOutput(agent, said)
		took = append(took, time.Since(begun))
		if string(out) != want {
			t.Fatalf("%d bytes, want %d: %.60s", len(out), len(want), out)
		}
		if took[len(took)-1] < 10*time.Second {
			return
		}
	}
	t.Errorf("it took %v", took)
}

// TestRedactProperty: whatever the text, the secret and the limit, neither the
// secret nor a half of it at the cut is in the result.
func TestRedactProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[A-Z0-9"\\]{4,12}`).Draw(t, "secret")
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "bc", "é", " ", secret}), 0, 20).Draw(t, "parts")
		text := strings.Join(parts, "")
		limit := rapid.IntRange(0, len(text)+3).Draw(t, "limit")
		got := Redact(parley.Agent{Credential: parley.NewSecret([]byte(secret))}, []byte(text), limit)
		if !utf8.ValidString(got) {
			t.Fatalf("not UTF-8: %q", got)
		}
		rest := strings.ReplaceAll(strings.ReplaceAll(got, redactedMark, ""), "… (cut)", "")
		if strings.ContainsAny(rest, `ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"\`) {
			t.Fatalf("Redact(%q, %d) with %q leaks: %q", text, limit, secret, got)
		}
	})
}

// TestRedactSpelledProperty: a secret is found wherever it stands in a JSON string,
// whichever of its characters are escaped and wherever the text is cut, and nothing
// else is taken out.
func TestRedactSpelledProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`B[A/é😀]{3,11}`).Draw(t, "secret")
		begun := rapid.IntRange(0, len(secret)-1).Draw(t, "begun")
		text, want := "", ""
		for _, part := range rapid.SliceOfN(rapid.SampledFrom([]string{"x", `\n`, `\\`, "é", `\u00e9`, secret}), 0, 20).Draw(t, "parts") {
			if part != secret {
				text, want = text+part, want+part
				continue
			}
			for _, r := range secret {
				text += rapid.SampledFrom(spellingsOf(r)).Draw(t, "spelling")
			}
			want += redactedMark
		}
		agent := parley.Agent{Credential: parley.NewSecret([]byte(secret))}
		if got := Redact(agent, []byte(text), len(text)); got != want {
			t.Fatalf("Redact(%q) with %q is %q, want %q", text, secret, got, want)
		}
		if got := string(RedactJSON(agent, []byte(`"`+text+`"`))); got != `"`+want+`"` {
			t.Fatalf("RedactJSON(%q) with %q is %q, want %q", text, secret, got, want)
		}
		got := Redact(agent, []byte(text), min(len(text), begun))
		if left := strings.ReplaceAll(got, redactedMark, ""); strings.ContainsAny(left, "AB/😀") || strings.Contains(left, `\u004`) {
			t.Fatalf("Redact(%q, %d) with %q leaks: %q", text, begun, secret, got)
		}
	})
}

// spellingsOf gives the ways to write a character in a JSON string.
func spellingsOf(r rune) []string {
	units := utf16.AppendRune(nil, r)
	lower, upper := "", ""
	for _, u := range units {
		lower, upper = lower+fmt.Sprintf(`\u%04x`, u), upper+fmt.Sprintf(`\u%04X`, u)
	}
	all := []string{string(r), lower, upper}
	if r == '/' {
		all = append(all, `\/`)
	}
	return all
}

// TestRedactErrorDetails: a secret that looks like a part of JSON does not break
// the details.
func TestRedactErrorDetails(t *testing.T) {
	agent := parley.Agent{Credential: parley.NewSecret([]byte("123"))}
	e := parley.Errorf(parley.CodeAgentError, "123").WithDetails(map[string]int{"n": 41234})
	e = redactError(agent, e)
	if b, err := json.Marshal(e); err != nil || bytes.Contains(b, []byte("123")) {
		t.Errorf("%s, %v", b, err)
	}
}

// TestMembers reads objects and arrays as they stand.
func TestMembers(t *testing.T) {
	raw, err := CheckJSON("x", []byte("\xef\xbb\xbf { \"a\" : [1, {\"b\":\"]}\\\"\"}] ,\"\\u0062\\\\\":\"x\\\\\",\"a\":-1.50e3 , \"\":null,\"o\":{} } \n"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for name, value := range Members(raw) {
		got = append(got, string(name)+"="+string(value))
	}
	want := `a=[1, {"b":"]}\""}]|b\="x\\"|a=-1.50e3|=null|o={}`
	if strings.Join(got, "|") != want {
		t.Errorf("members %q, want %q", strings.Join(got, "|"), want)
	}
	for range Members([]byte(`[1]`)) {
		t.Error("an array has no members")
	}
	for range Elements([]byte(`{"a":1}`)) {
		t.Error("an object has no elements")
	}
	got = nil
	for e := range Elements([]byte(`[ 1 , "a,]" ,[2,[3]],{"a":[]}, true ]`)) {
		got = append(got, string(e))
	}
	if strings.Join(got, "|") != `1|"a,]"|[2,[3]]|{"a":[]}|true` {
		t.Errorf("elements %q", got)
	}
}

// TestCheckJSONDepth: 64 is allowed, 65 is not, and brackets in strings do not
// count.
func TestCheckJSONDepth(t *testing.T) {
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{strings.Repeat("[", 64) + strings.Repeat("]", 64), true},
		{strings.Repeat("[", 65) + strings.Repeat("]", 65), false},
		{strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), false},
		{`"` + strings.Repeat("[", 100) + `"`, true},
		{`"\"` + strings.Repeat("[", 100) + `"`, true},
		{strings.Repeat("[],", 0) + "[" + strings.Repeat("[],", 100) + "[]]", true},
	} {
		if _, err := CheckJSON("x", []byte(c.text)); (err == nil) != c.ok {
			t.Errorf("%.80s: %v", c.text, err)
		}
	}
}

// FuzzMembers: what passes CheckJSON is JSON, and Members and Elements see in it
// what the standard library sees.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{"a":1,"b":[1,2,{"c":"\"]}"}]}`, ` [1, "x\\", {}] `, `{"":{"":[]},"\u0061\n":null}`, `"\ud800"`, `{"a":1,"a":2}`, `1e5`, "\xef\xbb\xbf{}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		raw, err := CheckJSON("x", body)
		if err != nil {
			return
		}
		if !json.Valid(raw) {
			t.Fatalf("not JSON: %q", raw)
		}
		switch raw[0] {
		case '{':
			sameMembers(t, raw)
		case '[':
			var want []json.RawMessage
			if err := json.Unmarshal(raw, &want); err != nil {
				t.Fatal(err)
			}
			i := 0
			for e := range Elements(raw) {
				if i >= len(want) || !bytes.Equal(e, want[i]) {
					t.Fatalf("element %d of %q is %q", i, raw, e)
				}
				i++
			}
			if i != len(want) {
				t.Fatalf("%d elements in %q, want %d", i, raw, len(want))
			}
		}
	})
}

func sameMembers(t *testing.T, raw []byte) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	_, _ = dec.Token()
	for name, value := range Members(raw) {
		want, err := dec.Token()
		if err != nil || want != string(name) {
			t.Fatalf("name %q in %q, want %v (%v)", name, raw, want, err)
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil || !bytes.Equal(v, value) {
			t.Fatalf("value %q of %q in %q, want %q (%v)", value, name, raw, v, err)
		}
	}
	if end, err := dec.Token(); err != nil || end != json.Delim('}') {
		t.Fatalf("%q has more members: %v, %v", raw, end, err)
	}
}

// TestParseURL_Memory: a URL with a name that an agent has made up, at any
// length, is not remembered.
func TestParseURL_Memory(t *testing.T) {
	x := NewExchange(ExchangeConfig{})
	for size, want := range map[int]int64{maxURL: 1, maxURL + 1: 0} {
		x.urls.Clear()
		x.urlCount.Store(0)
		raw := "http://agent.test/tasks/"
		raw += strings.Repeat("x", size-len(raw))
		u, err := x.parseURL(raw)
		if err != nil || u.Host != "agent.test" || x.urlCount.Load() != want {
			t.Errorf("%d bytes: %d remembered, %v", size, x.urlCount.Load(), err)
		}
	}
}

// TestEgressTunnels: an address that leads to a private one by way of a
// translator or a tunnel is refused as that one is.
func TestEgressTunnels(t *testing.T) {
	g := Egress{}.dialer(true).ControlContext
	for _, address := range []string{
		"[64:ff9b::7f00:1]:443", "[64:ff9b::a9fe:a9fe]:443", "[64:ff9b:1::7f00:1]:443", "[2002:7f00:1::]:443", "[2002:a9fe:a9fe::1]:443",
		"[::127.0.0.1]:443", "[2001:0:7f00:1::]:443", "[fe80::1%eth0]:443", "[fec0::1]:443", "[ff02::1]:443", "[::]:443", "255.255.255.255:443",
		"168.63.129.16:443", "[::ffff:168.63.129.16]:443",
	} {
		if err := g(t.Context(), "tcp6", address, nil); err == nil {
			t.Errorf("%s is reached", address)
		}
	}
}

// TestTraceOnTheWire: no trace adds headers of its own, wherever it comes from.
func TestTraceOnTheWire(t *testing.T) {
	t.Parallel()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for trace, want := range map[parley.Trace]int{
		{}:                                   0,
		{Parent: parent}:                     1,
		{Parent: parent, State: "a=1"}:       2,
		{Parent: parent + "\r\nX: y"}:        0,
		{Parent: parent, State: "a=1\nX: y"}: 0,
		{Parent: parent, State: "a=1\x00"}:   0,
	} {
		h := http.Header{}
		if addTrace(h, trace); len(h) != want {
			t.Errorf("%q becomes %q", trace, h)
		}
	}
}
