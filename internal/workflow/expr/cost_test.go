package expr

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"github.com/parley-project/parley"
)

// TestE11_LoopsOverLargeValuesPassTheCostLimit holds expressions that run for
// seconds or minutes where CEL's own prices count, because the operands have
// no static type.
func TestE11_LoopsOverLargeValuesPassTheCostLimit(t *testing.T) {
	d := document{input: fmt.Sprintf(`{"n":[%s0],"s":"%s","o":[%s1],"w":[%s1]}`, strings.Repeat("0,", 15_000),
		strings.Repeat("a", 500_000), strings.Repeat(`{"a":[1,2,3,4,5,6,7,8,9]},`, 5000), strings.Repeat(`"some text",`, 15_000))}
	c := d.compiler(t)
	for _, inner := range []string{
		"1 in i.n", "i.n in [i.n]", "i.n == i.n", "i.o != i.o", "i.o.distinct() == []", "i.w.distinct() == []",
		"i.s == i.s + 'a'", "i.s.contains('b')", "i.s.matches('(a*)*b')", "i.s < i.s", "size(i.s) > 5", "string(i.s) == ''",
		"bytes(i.s) == b''", "i.s.charAt(5) == ''", "i.s.indexOf('b') == 1", "i.s.lowerAscii() == ''", "i.s.trim() == ''",
		"i.s.split('a') == []", "i.s.replace('b', 'a') == ''", "i.s.substring(5) == ''", "i.s.reverse() == ''",
		"strings.quote(i.s) == ''", "[''].join(i.s) == '' && i.w.join() == ''", "'%s'.format([i.s]) == ''", "'%s'.format([i.w]) == ''",
		"i.n.sort() == []", "i.n.reverse() == []", "i.n.slice(1, 9999) == []", "i.n.flatten() == []", "i.n.hasAll([1])",
		"math.greatest(i.n) == 1", "lists.range(9999) == []", "sum(i.n) == 1", "avg(i.n) == 1.0", "to_json(i.n) == ''",
		"(i.n + i.n) == []", "base64.encode(bytes(i.s)) == ''", "parse_json(to_json(i.n)) == []",
	} {
		_, err := evalTemplate(t, c, one("cel.bind(i, workflow.input, i.n.filter(x, "+inner+"))"), At{}, d.scope())
		if parley.CodeOf(err) != parley.CodeLimit {
			t.Errorf("%s: %v", inner, err)
		}
	}
	// These are cheap and read the large value only once.
	for _, inner := range []string{"has(i.absent)", "i.?absent.orValue(x) == 0", "merge({'a': x}, {'b': x}).a == 0", "x in {0: 1}"} {
		if _, err := evalTemplate(t, c, one("cel.bind(i, workflow.input, i.n.slice(0, 300).filter(x, "+inner+").size())"), At{}, d.scope()); err != nil {
			t.Errorf("%s: %v", inner, err)
		}
	}
}

func TestE11_MembersAreSearchedAFewTimesThenDecoded(t *testing.T) {
	o := &jsonObject{raw: rawJSON(`{"a":1,"b":2,"c":3,"d":4,"e":5,"e":6}`)}
	c := document{}.compiler(t)
	env, err := c.env()
	if err != nil {
		t.Fatal(err)
	}
	o.adapter = env.adapter
	for name, want := range map[string]string{"a": "1", "b": "2", "x": "", "c": "3", "e": "6", "y": "", "d": "4"} {
		for range 2 {
			v, ok := o.Find(env.adapter.NativeToValue(name))
			if ok != (want != "") || ok && fmt.Sprint(v.Value()) != want {
				t.Errorf("%s = %v, %v", name, v, ok)
			}
		}
	}
	if o.whole == nil || len(o.seen) != maxSearches {
		t.Errorf("searched %d times, decoded %v", len(o.seen), o.whole != nil)
	}
}

func TestE11_PricesFollowTheSizeOfWhatIsRead(t *testing.T) {
	c := document{}.compiler(t)
	env, err := c.env()
	if err != nil {
		t.Fatal(err)
	}
	value := func(raw string) ref.Val { return env.adapter.fromJSON(rawJSON(raw)) }
	deep := value("[[" + strings.Repeat("[1,2,3,4],", 10_000) + "1]]")
	for name, tc := range map[string]struct {
		function string
		args     []ref.Val
		least    uint64
	}{
		"equality":    {operators.Equals, []ref.Val{deep, deep}, 10_000},
		"inequality":  {operators.NotEquals, []ref.Val{deep, deep}, 10_000},
		"membership":  {operators.In, []ref.Val{deep, types.NewRefValList(env.adapter, []ref.Val{deep})}, 10_000},
		"made list":   {operators.Equals, []ref.Val{types.NewRefValList(env.adapter, []ref.Val{deep}), deep}, 10_000},
		"conversion":  {"string", []ref.Val{types.String(strings.Repeat("x", 1000))}, 100},
		"format":      {"format", []ref.Val{types.String("%s"), types.NewRefValList(env.adapter, []ref.Val{deep})}, 10_000},
		"known later": {"reverse", []ref.Val{deep}, 10_000},
	} {
		price := costs{}.CallCost(tc.function, "", tc.args, types.True)
		if price == nil || *price < tc.least {
			t.Errorf("%s costs %v, want at least %d", name, price, tc.least)
		}
	}
	if price := (costs{}).CallCost(operators.Equals, "", []ref.Val{deep, types.True}, types.False); *price > 1 {
		t.Errorf("what differs at once costs %d", *price)
	}
	if price := (costs{}).CallCost("contains", "contains_string", nil, types.True); price != nil {
		t.Errorf("CEL's own price is replaced by %d", *price)
	}
}

// TestE11_CallsThatTakeTheSquareOfAValueAreNotMade holds single calls that would take
// from minutes to years: their cost counts before they are made, since nobody would see
// the end of them. Where the cost allows them they give what they gave.
func TestE11_CallsThatTakeTheSquareOfAValueAreNotMade(t *testing.T) {
	numbers := strings.Repeat("7,", 2_000_000)
	objects := strings.Repeat(`{"a":1},`, 400_000)
	text := strings.Repeat("a", 4_000_000)
	large := document{input: `{"n":[` + numbers + `0],"o":[` + objects + `{}],"s":"` + text + `","t":"` + text[:2_000_000] + `b","p":"(a|b|c)*d"}`}
	small := document{input: `{"n":[3,1,2,1],"o":[{"a":1},{},{"a":1.0}],"s":"abcabc","t":"bc","p":"^a.*c$"}`}
	of := document{}.compiler(t)
	for expression, want := range map[string]string{
		"i.o.distinct()": `[{"a":1},{}]`, "i.n.map(x, i.n.distinct())[0]": "[3,1,2]",
		"i.o.hasOnly(i.o)": "true", "i.o.hasAny(i.o.reverse())": "true", "i.o.hasAll([{}])": "true", "i.o.hasExactly(i.n)": "false",
		"i.n.sort()": "[1,1,2,3]", "i.n.sortBy(x, -x)": "[3,2,1,1]",
		"i.s.indexOf(i.t)": "1", "i.s.indexOf(i.t, 2)": "4", "i.s.lastIndexOf(i.t)": "4", "i.s.lastIndexOf(i.t, 3)": "1",
		"i.s.matches(i.p)": "true", "matches(i.s, i.p)": "true", "i.s.matches('^(a|b|c){0,99}$')": "true", "matches(i.s, '^(a|b|c){0,98}$')": "true",
	} {
		template := one("cel.bind(i, workflow.input, " + expression + ")")
		if got, err := evalTemplate(t, of, template, At{}, small.scope()); got != want || err != nil {
			t.Errorf("%s = %s, %v, want %s", expression, got, err, want)
		}
		if expression == "i.s.lastIndexOf(i.t)" || strings.HasPrefix(expression, "i.n.map") {
			continue
		}
		made := make(chan error, 1)
		go func() {
			_, err := evalTemplate(t, of, template, At{}, large.scope())
			made <- err
		}()
		select {
		case err := <-made:
			wantError(t, err, parley.CodeLimit, "expression_cost is more than 100000 units")
		case <-time.After(time.Minute):
			t.Fatalf("%s is made", expression)
		}
	}
	for expression, text := range map[string]string{
		"workflow.input.n.indexOf('a')": "no such overload", "workflow.input.s.distinct()": "no such overload", "workflow.input.n.matches('a')": "no such overload",
		"workflow.input.n.matches(workflow.input.p)": "no such overload", "workflow.input.s.sort()": "no such overload", "workflow.input.o.hasAll(workflow.input.s)": "no such overload",
	} {
		_, err := evalTemplate(t, of, one(expression), At{}, small.scope())
		wantError(t, err, parley.CodeExpression, text)
	}
}
