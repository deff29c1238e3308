package logging_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/logging"
)

// canary is a secret that must not be seen. It has signs that are escaped.
const canary = `c4nary"<in>&\the/mine+é`

type inner struct {
	Name     string
	APIKey   string `json:"k"`
	Password *string
	hidden   string
	Nested   []map[string]any `json:"nested,omitempty"`
}

type stringer struct{ token string }

func (s *stringer) Error() string { return "failed with " + s.token }

type cyclic struct {
	Next  *cyclic
	Token string
}

type endless struct{}

func (e endless) LogValue() slog.Value { return slog.GroupValue(slog.Any("again", e)) }

type angry struct{}

func (angry) MarshalText() ([]byte, error) { panic("angry") }

func ring() *cyclic {
	c := &cyclic{Token: canary}
	c.Next = c
	return c
}

// leaks are ways to log the canary. known says that only a redactor that was
// told the value can find it.
func leaks() []struct {
	name  string
	known bool
	log   func(*slog.Logger)
} {
	value := canary
	key := inner{Name: "n", APIKey: canary, Password: &value, hidden: canary}
	deep := map[string]any{"list": []any{map[string]any{"deeper": []inner{key}}}}
	body, _ := json.Marshal(map[string]any{"auth_config": map[string]any{"key": canary}, "items": []any{map[string]any{"bot_token": canary}}})
	type entry = struct {
		name  string
		known bool
		log   func(*slog.Logger)
	}
	plain := strings.NewReplacer(`"`, "", `\`, "", "<", "", ">", "", "&", "").Replace(canary)
	return []entry{
		{"key", false, func(l *slog.Logger) { l.Info("x", "api_key", canary) }},
		{"key with", false, func(l *slog.Logger) { l.With("Authorization", "Bearer "+canary).Info("x") }},
		{"group", false, func(l *slog.Logger) { l.WithGroup("credentials").Info("x", "value", canary) }},
		{"group in group", false, func(l *slog.Logger) { l.Info("x", slog.Group("a", slog.Group("b", slog.String("set-cookie", canary)))) }},
		{"header map", false, func(l *slog.Logger) {
			l.Info("x", "headers", http.Header{"X-Api-Key": {canary}, "Cookie": {canary}, "Proxy-Authorization": {canary}, "Accept": {"*/*"}})
		}},
		{"struct", false, func(l *slog.Logger) { l.Info("x", "v", key) }},
		{"pointer", false, func(l *slog.Logger) { l.Info("x", "v", &key) }},
		{"struct in a slice in a map", false, func(l *slog.Logger) { l.Info("x", "v", deep) }},
		{"secret type", false, func(l *slog.Logger) {
			l.Info("x", "v", []parley.Agent{{Credential: parley.NewSecret([]byte(canary))}}, "w", parley.NewSecret([]byte(canary)))
		}},
		{"spec", false, func(l *slog.Logger) { l.Info("x", "v", parley.AuthSpec{Literal: parley.NewSecret([]byte(canary))}) }},
		{"raw JSON", false, func(l *slog.Logger) { l.Info("x", "v", json.RawMessage(body)) }},
		{"JSON bytes", false, func(l *slog.Logger) { l.Info("x", "v", body) }},
		{"JSON text", false, func(l *slog.Logger) { l.Info("x", "v", string(body)) }},
		{"JSON in an error", false, func(l *slog.Logger) {
			b, _ := json.Marshal(map[string]string{"token": canary, "other": "x"})
			l.Info("x", "err", fmt.Errorf("cannot decode %s", b), "q", fmt.Sprintf("%q", b))
		}},
		{"cycle", false, func(l *slog.Logger) { l.Info("x", "v", ring()) }},
		{"log valuer", false, func(l *slog.Logger) { l.Info("x", "v", map[string]any{"e": endless{}, "token": canary}) }},
		{"url", false, func(l *slog.Logger) {
			u := url.URL{Scheme: "http", Host: "h", User: url.UserPassword("ann", canary), RawQuery: url.Values{"access_token": {canary}}.Encode()}
			l.Info("x", "v", u.String(), "u", u, "p", &u, "err", &url.Error{Op: "Get", URL: u.String(), Err: errors.New("no")})
		}},
		{"header text", false, func(l *slog.Logger) { l.Info("Authorization: bearer " + plain + "123456789012345678901234567890") }},
		{"printed struct", false, func(l *slog.Logger) { l.Info(fmt.Sprintf("%+v", struct{ Token, B string }{plain, "x"})) }},
		{"printed headers", false, func(l *slog.Logger) { l.Info(fmt.Sprint(http.Header{"X-Api-Key": {plain}})) }},
		{"dsn", false, func(l *slog.Logger) {
			l.Info("cannot connect: host=a password=" + plain + " user=b and password='" + plain + " blank'")
		}},

		{"message", true, func(l *slog.Logger) { l.Info("it is " + canary) }},
		{"other key", true, func(l *slog.Logger) { l.Info("x", "text", "it is "+canary) }},
		{"key itself", true, func(l *slog.Logger) { l.Info("x", canary, 1) }},
		{"error", true, func(l *slog.Logger) { l.Info("x", "err", fmt.Errorf("outer: %w", &stringer{canary})) }},
		{"error deep inside", true, func(l *slog.Logger) { l.Info("x", "v", []any{map[string]any{"e": &stringer{canary}}}) }},
		{"error of ours", true, func(l *slog.Logger) { l.Info("x", "err", parley.Errorf(parley.CodeInternal, "it is %s", canary)) }},
		{"go syntax", true, func(l *slog.Logger) { l.Info(fmt.Sprintf("%#v %q", key, canary)) }},
		{"escaped", true, func(l *slog.Logger) { l.Info(url.QueryEscape(canary) + " " + url.PathEscape(canary)) }},
		{"hex", true, func(l *slog.Logger) { l.Info(fmt.Sprintf("%x", canary)) }},
		{"long", true, func(l *slog.Logger) { l.Info(strings.Repeat("x", logging.MaxValue-5) + canary) }},
		{"long in a struct", true, func(l *slog.Logger) { l.Info("x", "v", []string{strings.Repeat("x", logging.MaxValue-5) + canary}) }},
	}
}

// seen looks for the canary or a telling part of it in any spelling.
func seen(out string) string {
	for _, part := range []string{"c4nary", "the/mine", "the%2Fmine", "mine+", "63346e617279"} {
		if strings.Contains(out, part) {
			return part
		}
	}
	return ""
}

// The canary test of the reliability rules: no way of logging a secret shows it.
func TestCanary(t *testing.T) {
	for _, format := range []logging.Format{logging.Text, logging.JSON} {
		for _, told := range []bool{false, true} {
			for _, leak := range leaks() {
				if leak.known && !told {
					continue
				}
				t.Run(fmt.Sprintf("%s/told=%v/%s", format, told, leak.name), func(t *testing.T) {
					var out bytes.Buffer
					r := logging.NewRedactor()
					if told {
						r.Add(parley.NewSecret([]byte(canary)))
					}
					leak.log(logging.New(&out, logging.Config{Format: format, Redactor: r}))
					if part := seen(out.String()); part != "" {
						t.Errorf("%q is in the log:\n%.400s", part, out.String())
					}
					if !strings.Contains(out.String(), "[red") {
						t.Errorf("nothing was redacted:\n%.400s", out.String())
					}
					if format == logging.JSON && !json.Valid(out.Bytes()) {
						t.Errorf("the line is no JSON:\n%.400s", out.String())
					}
				})
			}
		}
	}
}

func line(t *testing.T, format logging.Format, args ...any) string {
	t.Helper()
	var out bytes.Buffer
	logging.New(&out, logging.Config{Format: format}).Info("m", args...)
	_, rest, _ := strings.Cut(out.String(), "msg")
	return strings.TrimSpace(rest)
}

func TestHarmlessValuesStayAsTheyAre(t *testing.T) {
	type row struct {
		Name  string         `json:"name"`
		N     int            `json:"n"`
		Skip  string         `json:"-"`
		Since time.Duration  `json:"since"`
		At    time.Time      `json:"at"`
		Tags  []string       `json:"tags"`
		More  map[string]any `json:"more"`
	}
	v := row{"a", 1, "no", 3 * time.Second, time.Unix(0, 0).UTC(), []string{"x"}, map[string]any{"f": 1.5, "inf": math.Inf(1), "nil": nil}}
	for _, tt := range []struct{ got, want string }{
		{line(t, logging.JSON, "s", "text", "i", 7, "d", time.Second, "b", true, "has_token", true, "token", ""), `":"m","s":"text","i":7,"d":1000000000,"b":true,"has_token":true,"token":""}`},
		{line(t, logging.Text, "s", "two words", "d", time.Second, "has_token", true), `=m s="two words" d=1s has_token=true`},
		{line(t, logging.JSON, "v", v), `":"m","v":{"at":"1970-01-01T00:00:00Z","more":{"f":1.5,"inf":"+Inf","nil":null},"n":1,"name":"a","since":"3s","tags":["x"]}}`},
		{line(t, logging.JSON, "v", json.RawMessage(`{"big":12345678901234567890123, "z":1,"a":2}`)), `":"m","v":{"big":12345678901234567890123,"z":1,"a":2}}`},
		{line(t, logging.Text, "v", json.RawMessage(`{"b":1}`)), `=m v="{\"b\":1}"`},
		{line(t, logging.JSON, "v", []byte("plain"), "w", []byte{0xff, 0, 1}, "x", [4]byte{'a', 'b', 'c', 'd'}), `":"m","v":"plain","w":"3 bytes","x":"abcd"}`},
		{line(t, logging.JSON, "err", errors.New("no token: unexpected end"), "nil", nil), `":"m","err":"no token: unexpected end","nil":null}`},
		{line(t, logging.JSON, "v", angry{}, "c", make(chan int)), `":"m","v":"!PANIC in logging_test.angry","c":"chan int"}`},
		{line(t, logging.JSON, "url", "http://h:80/p?q=1&token_count=5", "m", "Bearer authentication"), `":"m","url":"http://h:80/p?q=1&token_count=5","m":"Bearer authentication"}`},
		{line(t, logging.JSON, "status", parley.RunFailed, "p", (*row)(nil)), `":"m","status":"FAILED","p":null}`},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestValuesAreCut(t *testing.T) {
	for name, v := range map[string]any{
		"string":  strings.Repeat("ä", logging.MaxValue),
		"strings": []string{strings.Repeat("x", logging.MaxValue/2), strings.Repeat("y", logging.MaxValue), "z"},
		"JSON":    json.RawMessage(`["` + strings.Repeat("x", 2*logging.MaxValue) + `"]`),
		"bytes":   bytes.Repeat([]byte("x"), 10*logging.MaxValue),
		"error":   errors.New(strings.Repeat("x", 2*logging.MaxValue)),
		"list":    make([]int, 1_000_000),
		"map":     manyKeys(100_000),
		"deep":    nest(100_000),
	} {
		for _, format := range []logging.Format{logging.Text, logging.JSON} {
			got := line(t, format, "v", v)
			if len(got) > logging.MaxValue+logging.MaxValue/4 {
				t.Errorf("%s as %s gave %d bytes", name, format, len(got))
			}
			if !strings.Contains(got, "…") {
				t.Errorf("%s as %s does not say that it was cut: %.100s", name, format, got)
			}
		}
	}
}

func manyKeys(n int) map[string]int {
	m := map[string]int{}
	for i := range n {
		m[fmt.Sprint(i)] = i
	}
	return m
}

func nest(n int) any {
	var v any
	for range n {
		v = []any{v}
	}
	return v
}

func TestSensitiveKey(t *testing.T) {
	for _, key := range []string{
		"authorization", "Authorization", "Proxy-Authorization", "token", "bot_token", "AccessToken", "api_key", "apikey",
		"X-Api-Key", "x.api.key", "password", "DB_PASSWORD", "secret", "client-secret", "credential", "Credentials", "cookie", "Set-Cookie", "auth_config",
	} {
		if !logging.SensitiveKey(key) {
			t.Errorf("SensitiveKey(%q) = false", key)
		}
	}
	for _, key := range []string{"", "-", "key", "name", "tokens", "max_tokens", "token_count", "time", "level", "msg", "secretary", "run", "agent", "state", "url", "x-correlation-id"} {
		if logging.SensitiveKey(key) {
			t.Errorf("SensitiveKey(%q) = true", key)
		}
	}
}

func TestRedactorOverlaps(t *testing.T) {
	r := logging.NewRedactor()
	for _, s := range []string{"short", "abcdef", "abcdefgh", "fghijklm", "[redacted]"} {
		r.Add(parley.NewSecret([]byte(s)))
	}
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{"abcde", "abcde"},
		{"abcdef", "[redacted]"},
		{"xabcdefx", "x[redacted]x"},
		{"abcdefg", "[redacted]g"},
		{"abcdefghi", "[redacted]i"},
		{"abcdefghijklm!", "[redacted]!"},
		{"abcdefabcdef", "[redacted][redacted]"},
		{"a short one", "a short one"},
		{"Bearer abcdef1234$$", "Bearer [redacted]$$"},
	} {
		if got := r.String(tt.text); got != tt.want {
			t.Errorf("String(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestQuotedMembers(t *testing.T) {
	r := logging.NewRedactor()
	for _, tt := range []struct{ text, want string }{
		{`{"token":"a","b":"c"}`, `{"token":"[redacted]","b":"c"}`},
		{`{"token" : "a"}`, `{"token" : "a"}`}, // nobody writes that; parsed JSON covers it
		{`{"token":  "a\"b\\","b":"c"}`, `{"token":  "[redacted]","b":"c"}`},
		{`"{\"token\":\"a\\\"b\\\\\",\"b\":1}"`, `"{\"token\":\"[redacted]\",\"b\":1}"`},
		{`"{\"token\":\"cut off","b":"c"`, `"{\"token\":\"[redacted]","b":"c"`},
		{`{"token":null,"b":"c"}`, `{"token":null,"b":"c"}`},
		{`{"token":""}`, `{"token":""}`},
		{`{"token":"` + strings.Repeat(`\`, 5), `{"token":"[redacted]`},
		{`":"`, `":"`},
		{`"`, `"`},
	} {
		if got := r.String(tt.text); got != tt.want {
			t.Errorf("String(%s) = %s, want %s", tt.text, got, tt.want)
		}
	}
}

// TestAssignedValues: values behind a bare name, as package fmt, URLs, connection
// strings and JSON in a string write them.
func TestAssignedValues(t *testing.T) {
	r := logging.NewRedactor()
	for _, tt := range []struct{ text, want string }{
		{"password=abc next", "password=[redacted] next"},
		{"password=abc\nnext", "password=[redacted]\nnext"},
		{"password='a b' next", "password='[redacted]' next"},
		{"password='x'", "password='[redacted]'"},
		{`say \"password=\\\"a b\\\" next\"`, `say \"password=\\\"[redacted]\\\" next\"`},
		{`say "password=\"a b\" next"`, `say "password=\"[redacted]\" next"`},
		{`say "password=abc" next`, `say "password=[redacted]" next`},
		{`say "password=" next`, `say "password=" next`}, // the quote ends what is said
		{"?a=b&api_key=abc&c=d", "?a=b&api_key=[redacted]&c=d"},
		{"{Token:abc Other:x}", "{Token:[redacted] Other:x}"},
		{"{Token:a}", "{Token:[redacted]}"},
		{"token:a", "token:[redacted]"},
		{"map[X-Api-Key:[abc] Accept:[*/*]]", "map[X-Api-Key:[[redacted]] Accept:[*/*]]"},
		{"map[token:abc]", "map[token:[redacted]]"},
		{"token=[redacted] token=redacted token=true token=false token=null token=<nil>", "token=[redacted] token=redacted token=true token=false token=null token=<nil>"},
		{"no token: end", "no token: end"},
		{"token:", "token:"},
		{"token=", "token="},
		{strings.Repeat("x", 100) + "_token=abc", strings.Repeat("x", 100) + "_token=[redacted]"},
	} {
		if got := r.String(tt.text); got != tt.want {
			t.Errorf("String(%s) = %s, want %s", tt.text, got, tt.want)
		}
	}
}

// TestSchemes: what follows an authentication scheme is a credential unless it may be
// a word: one of 20 bytes, or of 8 with a digit, is none.
func TestSchemes(t *testing.T) {
	r := logging.NewRedactor()
	for value, hidden := range map[string]bool{
		"abcdef12": true, "abcde12": false, "abcdefgh": false, "0abcdefg": true, "9abcdefg": true, "abcdefg0": true,
		strings.Repeat("a", 20): true, strings.Repeat("a", 19): false, "dXNlcjpwYXNz1Q==": true, "A-Z.z_~+/aZ=2": true,
	} {
		for _, scheme := range []string{"Bearer ", "bearer ", "Authorization: BASIC "} {
			want := scheme + value
			if hidden {
				want = scheme + "[redacted]"
			}
			if got := r.String(scheme + value + "! and more"); got != want+"! and more" {
				t.Errorf("%s%s became %s", scheme, value, got)
			}
		}
	}
}

// TestFieldsBesideSecrets: what stands beside a secret is shown, in the way that hides
// it: field by field, not as the value would print itself.
func TestFieldsBesideSecrets(t *testing.T) {
	login := &login{User: "ann", Password: canary, Host: "db"}
	for _, got := range []string{line(t, logging.JSON, "v", login), line(t, logging.JSON, "v", *login)} {
		if want := `":"m","v":{"Host":"db","Password":"[redacted]","User":"ann"}}`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	two := `{"token":"c4nary"} {"token":"c4nary"}`
	if got := line(t, logging.JSON, "v", json.RawMessage(two), "w", two); strings.Contains(got, "c4nary") {
		t.Error(got)
	}
}

type login struct{ User, Password, Host string }

func (l login) String() string { return l.User + ":" + l.Password + "@" + l.Host }

func TestRedactorForgetsTheOldest(t *testing.T) {
	const most = 10_000
	r := logging.NewRedactor()
	secret := func(i int) string { return fmt.Sprintf("secret-%05d", i) }
	kept := []string{"kept-first", "kept-later"}
	r.Keep(parley.NewSecret([]byte(kept[0])))
	for _, s := range []string{kept[0], kept[1]} {
		r.Add(parley.NewSecret([]byte(s)))
	}
	r.Keep(parley.NewSecret([]byte(kept[1])))
	for i := range most + 1 {
		r.Add(parley.NewSecret([]byte(secret(i))))
	}
	for i, want := range map[int]string{0: secret(0), 1: "[redacted]", most: "[redacted]"} {
		if got := r.String(secret(i)); got != want {
			t.Errorf("number %d is shown as %q, want %q", i, got, want)
		}
	}
	for _, s := range kept {
		if got := r.String(s); got != "[redacted]" {
			t.Errorf("%q is shown as %q", s, got)
		}
	}
	if got := r.String(hex.EncodeToString([]byte(secret(0)))); got == "[redacted]" {
		t.Error("a form of what was forgotten is still looked for")
	}
}

// The user information of a URL ends at its last @: passwords may hold some.
func TestPasswordsInURLs(t *testing.T) {
	r := logging.NewRedactor()
	for text, want := range map[string]string{
		"dial postgres://ann:c4nary@db/x: refused":     "dial postgres://ann:[redacted]@db/x: refused",
		"dial postgres://ann:p@c4nary@db:5432/x?a=b@c": "dial postgres://ann:[redacted]@db:5432/x?a=b@c",
		"amqp://ann:@c4nary@db":                        "amqp://ann:[redacted]@db",
		"http://ann:c@b":                               "http://ann:[redacted]@b",
		"at http://h:80/a@b, https://ann@h/c:d@e, f@g": "at http://h:80/a@b, https://ann@h/c:d@e, f@g",
	} {
		if got := r.String(text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A text that somebody else chose costs time in proportion to its length.
func TestHostileTextsAreQuick(t *testing.T) {
	r := logging.NewRedactor()
	r.Add(parley.NewSecret([]byte("aaaaaaaaaaaaaaaaaaaaaaaa")))
	start := time.Now()
	for _, unit := range []string{`\`, `"`, `"token":"\`, `"token":"`, `\":`, "://", "://a:", "://a:@", "@", " ", "bearer ", "token=", "a", "=", "token:'", "{", "[", `{"a":`} {
		text := strings.Repeat(unit, 1<<20/len(unit))
		_ = r.String(text)
		_ = r.String(`"token":"` + text)
		_ = line(t, logging.JSON, "v", text, "w", []byte(text), "x", json.RawMessage(text))
	}
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("took %v", d)
	}
}

// TestManySecretsAreQuick: tokens all begin alike, and a text of their beginning costs no
// more for each of them that is known, which is less than a second. To look at each of
// them at each place takes a minute, in which nobody else can log.
func TestManySecretsAreQuick(t *testing.T) {
	head := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256"}`)) + "."
	r := logging.NewRedactor()
	for i := range 3000 {
		r.Add(parley.NewSecret(fmt.Appendf(nil, "%s%09d", head, i*7919)))
	}
	text := strings.Repeat(head[:4], 256<<10) + head
	var took []time.Duration
	for range 3 { // one will do: a machine that is busy can but take longer
		begun := time.Now()
		if got := r.String(text + fmt.Sprintf("%09d", 7919)); got != text[:len(text)-len(head)]+"[redacted]" {
			t.Fatalf("%d bytes, %q", len(got), got[max(0, len(got)-64):])
		}
		took = append(took, time.Since(begun))
		if took[len(took)-1] < 10*time.Second {
			return
		}
	}
	t.Errorf("it took %v", took)
}

// TestRedactorLongest: of values that begin alike the longest is found, whatever comes and
// goes beside it.
func TestRedactorLongest(t *testing.T) {
	r := logging.NewRedactor()
	for _, s := range []string{"tokens", "tokens-ab", "tokens-abc-1", "tokens-abc-3", "tokens-b", "tokens-bc", "tokenz-a"} {
		r.Add(parley.NewSecret([]byte(s)))
	}
	for text, want := range map[string]string{
		"tokens-abc-2":   "[redacted]c-2", // past several, one that is long and another one
		"tokens-abc-3x":  "[redacted]x",
		"tokens-abc-":    "[redacted]c-",
		"tokens-abd":     "[redacted]d",
		"tokens-a":       "[redacted]-a",
		"tokens-bcd":     "[redacted]d",
		"tokens-c":       "[redacted]-c",
		"tokens":         "[redacted]",
		"tokent":         "tokent",
		"token":          "token",
		"tokenz-":        "tokenz-",
		"tokenz-azzzz":   "[redacted]zzzz",
		"tokenstokens-b": "[redacted][redacted]",
	} {
		if got := r.String(text); got != want {
			t.Errorf("String(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestRedactorConcurrently(t *testing.T) {
	r := logging.NewRedactor()
	var out bytes.Buffer
	log := logging.New(&out, logging.Config{Format: logging.JSON, Redactor: r})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				s := fmt.Sprintf("c4nary-%d-%d", g, i)
				r.Add(parley.NewSecret([]byte(s)))
				log.Info("it is "+s, "v", []string{s})
			}
		})
	}
	wg.Wait()
	if part := seen(out.String()); part != "" {
		t.Errorf("%q was seen", part)
	}
	if n := strings.Count(out.String(), "\n"); n != 200 {
		t.Errorf("%d lines, want 200", n)
	}
}

// The handlers stay what log/slog promises.
func TestSlogContract(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return logging.New(&out, logging.Config{Format: logging.JSON}).Handler()
	}, func(t *testing.T) map[string]any {
		var m map[string]any
		if err := json.Unmarshal(out.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		return m
	})
}

func TestLevelAndSource(t *testing.T) {
	var out bytes.Buffer
	log := logging.New(&out, logging.Config{Level: slog.LevelWarn, AddSource: true})
	log.Info("not this")
	log.Warn("this")
	if got := out.String(); strings.Contains(got, "not this") || !strings.Contains(got, "level=WARN") || !strings.Contains(got, "logging_test.go:") {
		t.Errorf("got %s", got)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestWriterHandsOnErrors(t *testing.T) {
	w := logging.NewRedactor().Writer(brokenWriter{})
	for _, s := range []string{"plain", `{"token":"abc"}`} {
		if n, err := w.Write([]byte(s)); n != 0 || err == nil {
			t.Errorf("Write(%q) = %d, %v", s, n, err)
		}
	}
	var out bytes.Buffer
	if n, err := logging.NewRedactor().Writer(&out).Write([]byte(`{"token":"abc"}`)); n != 15 || err != nil {
		t.Errorf("Write = %d, %v; want all 15 bytes", n, err)
	}
}

func FuzzScrub(f *testing.F) {
	f.Add(`{"token":"a\"b"}`, "secret")
	f.Add(`"{\"token\":\"a\\\\\"}" Bearer abcdefgh1 http://a:b@c/?token=x`, "abcdef")
	f.Add(`password='x y' {Token:x} ["":" `, "\\\\\\\"\"")
	f.Fuzz(func(t *testing.T, text, secret string) {
		r := logging.NewRedactor()
		r.Add(parley.NewSecret([]byte(secret)))
		got := r.String(text + secret + text)
		// A short secret may stand in what replaces it.
		if len(secret) > len("[redacted]") && strings.Contains(got, secret) {
			t.Errorf("%q is in %q", secret, got)
		}
		var out bytes.Buffer
		logging.New(&out, logging.Config{Format: logging.JSON}).Info(text, "v", []string{text}, "j", json.RawMessage(text))
		if !json.Valid(out.Bytes()) {
			t.Errorf("no JSON: %s", out.String())
		}
	})
}

func BenchmarkLog(b *testing.B) {
	type loggers = map[string]*slog.Logger
	told := logging.NewRedactor()
	for i := range 1000 {
		told.Add(parley.NewSecret(fmt.Appendf(nil, "sk-%d-0123456789abcdef", i*7919)))
	}
	for name, log := range (loggers{
		"plain slog":   slog.New(slog.NewJSONHandler(discard{}, nil)),
		"no secrets":   logging.New(discard{}, logging.Config{Format: logging.JSON}),
		"1000 secrets": logging.New(discard{}, logging.Config{Format: logging.JSON, Redactor: told}),
	}) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				log.Info("http_call", "task_id", "run-1.step.1", "agent_name", "writer", "correlation_id", "corr-1", "attempt", 1, "took", time.Second)
			}
		})
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
