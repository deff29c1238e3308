package verification_test

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/parley-project/parley/internal/zone"
	"github.com/parley-project/parley/internal/zone/verification"
)

// TestZN7_Texts: both languages have a text for every reason and every class, and
// none tells of the machinery.
func TestZN7_Texts(t *testing.T) {
	var need []string
	for _, reason := range zone.Reasons() {
		need = append(need, string(reason))
	}
	for _, class := range []zone.Class{
		zone.ClassNotSent, zone.ClassThrottled, zone.ClassConflict, zone.ClassAuth, zone.ClassTooLarge, zone.ClassUnavailable,
		zone.ClassUnknownOutcome, zone.ClassBadResponse,
	} {
		need = append(need, "transport."+string(class))
	}
	names := verification.TextNames()
	for _, name := range need {
		if !slices.Contains(names, name) {
			t.Errorf("no text for %s", name)
		}
	}
	technical := regexp.MustCompile(`(?i)json|rpc|http|zone|server|slack|token|timeout|exception|error|code|-3\d{4}|[{}_]`)
	for _, language := range []string{"en", "ja"} {
		texts, err := verification.NewTexts(language, nil)
		check(t, err)
		for _, name := range names {
			text := texts.Get(name)
			if name == "reference" {
				continue
			}
			if text == "" || technical.MatchString(text) || strings.ContainsAny(text, "<>&") {
				t.Errorf("%s: %s is %q", language, name, text)
			}
			if isJapanese := strings.ContainsFunc(text, func(r rune) bool { return unicode.In(r, unicode.Hiragana, unicode.Katakana) }); isJapanese != (language == "ja") {
				t.Errorf("%s: %s is %q", language, name, text)
			}
		}
		if texts.Get("never heard of") != texts.Get("internal") {
			t.Error("an unknown text")
		}
	}
}

// TestZN7_TextsReplaced: a text of the configuration is what people see, in Japanese
// too, and without a reference if that is empty.
func TestZN7_TextsReplaced(t *testing.T) {
	fail := func(r *rig) {
		r.exec.ask = func(context.Context, int, zone.Call) (zone.Result, zone.Info, error) {
			return zone.Result{}, zone.Info{}, &zone.Error{Reason: zone.ReasonTaskFailed}
		}
	}
	for name, c := range map[string]struct {
		language string
		texts    map[string]string
		want     string
	}{
		"japanese":     {language: "ja", want: "処理を完了できませんでした。もう一度お試しください。 （参照番号: 00000003）"},
		"replaced":     {texts: map[string]string{"task_failed": "Call <extension> 7 & ask"}, want: "Call &lt;extension&gt; 7 &amp; ask (reference: 00000003)"},
		"no reference": {texts: map[string]string{"reference": ""}, want: "I could not finish this. Please try again."},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(cfg *verification.Config) { cfg.Language, cfg.Texts = c.language, maps.Clone(c.texts) }, func(t *testing.T, r *rig) {
				fail(r)
				m := r.ask(message("why?"))
				pass(time.Second)
				r.want(m, c.want)
			})
		})
	}
}
