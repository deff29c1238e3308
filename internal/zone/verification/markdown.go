package verification

import (
	"regexp"
	"strings"
	"unicode"
)

// maxMessage is how many characters one message has at most: what Slack advises.
const maxMessage = 4000

// escape keeps Slack from reading a text as anything but text: nobody is mentioned
// and nothing is linked by an answer.
func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

var (
	heading  = regexp.MustCompile(`^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$`)
	bullet   = regexp.MustCompile(`^(\s*)[-*+]\s+`)
	codeSpan = regexp.MustCompile("`[^`\n]+`")
	linkOrIm = regexp.MustCompile(`!?\[([^\[\]\n]*)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)`)
	boldText = regexp.MustCompile(`\*\*([^*\n]+?)\*\*|__([^_\n]+?)__`)
	italic   = regexp.MustCompile(`(^|[^*\w])\*([^*\s](?:[^*\n]*[^*\s])?)\*($|[^*\w])`)
	struck   = regexp.MustCompile(`~~([^~\n]+?)~~`)
)

// mrkdwn turns Markdown into Slack's own form of it. What is in code stays as it
// is.
func mrkdwn(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\r\n", "\n")
	text = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, text)
	lines := strings.Split(text, "\n")
	fence := ""
	for i, line := range lines {
		mark := fenceOf(line)
		switch {
		case fence != "":
			if mark != "" && strings.HasPrefix(mark, fence) && strings.TrimSpace(line) == mark {
				fence, lines[i] = "", "```"
				continue
			}
			lines[i] = escape(strings.ReplaceAll(line, "```", "`\u200b``"))
		case mark != "":
			fence, lines[i] = mark, "```"
		default:
			lines[i] = inline(line)
		}
	}
	if fence != "" {
		lines = append(lines, "```")
	}
	return strings.Join(lines, "\n")
}

// fenceOf gives the signs by which a line begins or ends a block of code, "" if it
// does neither.
func fenceOf(line string) string {
	line = strings.TrimLeft(line, " \t")
	for _, sign := range []string{"`", "~"} {
		n := len(line) - len(strings.TrimLeft(line, sign))
		if n >= 3 && !strings.Contains(line[n:], "`") {
			return line[:n]
		}
	}
	return ""
}

// inline turns one line outside of code.
func inline(line string) string {
	if m := heading.FindStringSubmatch(line); m != nil {
		title := strings.NewReplacer("**", "", "__", "").Replace(m[1])
		if title == "" {
			return ""
		}
		if !strings.ContainsAny(title, "*`") {
			return "*" + links(title, escape) + "*"
		}
		line = title
	}
	line = bullet.ReplaceAllString(line, "${1}• ")
	var b strings.Builder
	for line != "" {
		at := codeSpan.FindStringIndex(line)
		if at == nil {
			at = []int{len(line), len(line)}
		}
		b.WriteString(links(line[:at[0]], emphasis))
		b.WriteString(escape(line[at[0]:at[1]]))
		line = line[at[1]:]
	}
	return b.String()
}

// links turns the links of a piece, and the rest by f.
func links(s string, f func(string) string) string {
	var b strings.Builder
	for {
		at := linkOrIm.FindStringSubmatchIndex(s)
		if at == nil {
			b.WriteString(f(s))
			return b.String()
		}
		b.WriteString(f(s[:at[0]]))
		text, url := s[at[2]:at[3]], s[at[4]:at[5]]
		switch {
		case !linkable(url):
			b.WriteString(escape(s[at[0]:at[1]]))
		case strings.TrimSpace(text) == "":
			b.WriteString("<" + linkURL(url) + ">")
		default:
			b.WriteString("<" + linkURL(url) + "|" + escape(strings.NewReplacer("|", "/", "**", "", "`", "").Replace(text)) + ">")
		}
		s = s[at[1]:]
	}
}

func linkable(url string) bool {
	for _, scheme := range []string{"https://", "http://", "mailto:"} {
		if len(url) > len(scheme) && strings.EqualFold(url[:len(scheme)], scheme) {
			return true
		}
	}
	return false
}

func linkURL(url string) string {
	return strings.NewReplacer("&", "&amp;", "<", "%3C", ">", "%3E", "|", "%7C").Replace(url)
}

// emphasis turns bold, italic and struck text. The sign in between keeps bold from
// being taken for italic.
func emphasis(s string) string {
	s = boldText.ReplaceAllString(escape(s), "\x00$1$2\x00")
	s = italic.ReplaceAllString(s, "${1}_${2}_$3")
	return strings.ReplaceAll(struck.ReplaceAllString(s, "~$1~"), "\x00", "*")
}

// split cuts a text in Slack's form into messages of at most limit characters: at
// paragraphs if it can, else at lines, at words, anywhere. A block of code that is
// longer than a message ends there and goes on in the next one; links and escaped
// signs stay whole.
func split(text string, limit int) []string {
	const closing, opening = "\n```", "```\n"
	var parts []string
	for {
		text = strings.TrimRightFunc(text, unicode.IsSpace)
		if offset(text, limit) == len(text) {
			if text != "" {
				parts = append(parts, text)
			}
			return parts
		}
		room := offset(text, limit)
		at := breakAt(text[:room])
		open := strings.Count(text[:at], "```")%2 == 1
		if open {
			// Before the block, if that leaves a message that is worth while.
			if start := strings.LastIndex(text[:at], "```"); start > room/2 && strings.TrimSpace(text[:start]) != "" {
				at, open = start, false
			} else {
				at = breakAt(text[:offset(text, limit-len(closing))])
				open = strings.Count(text[:at], "```")%2 == 1
			}
		}
		part, rest := text[:at], text[at:]
		if open {
			part, rest = strings.TrimRight(part, "\n")+closing, opening+strings.TrimPrefix(rest, "\n")
		}
		if part = strings.Trim(part, "\n"); strings.TrimSpace(part) != "" {
			parts = append(parts, part)
		}
		if !open {
			rest = strings.TrimLeft(rest, "\n ")
		}
		text = rest
	}
}

// offset gives the length in bytes of the first n characters.
func offset(s string, n int) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}

// breakAt says where the last good place to cut is; it is never 0.
func breakAt(s string) int {
	low := len(s) / 3 // a message that is much shorter is worse than a worse cut
	for _, sign := range []string{"\n\n", "\n", " "} {
		for at := strings.LastIndex(s, sign); at > low; at = strings.LastIndex(s[:at], sign) {
			if whole(s[:at]) {
				return at
			}
		}
	}
	at := len(s)
	if !whole(s) {
		if cut := strings.LastIndexAny(s, "<&"); cut > low {
			at = cut
		}
	}
	// Not within the three signs of a block of code.
	for n := 1; n <= 2; n++ {
		if at == len(s) && strings.HasSuffix(s, strings.Repeat("`", n)) && !strings.HasSuffix(s, strings.Repeat("`", n+1)) && at > n {
			return at - n
		}
	}
	return at
}

// whole says whether no link and no escaped sign is cut in two by the end of s.
func whole(s string) bool {
	if strings.LastIndexByte(s, '<') > strings.LastIndexByte(s, '>') {
		return false
	}
	at := strings.LastIndexByte(s, '&')
	return at < 0 || len(s)-at > 5 || strings.IndexByte(s[at:], ';') >= 0
}
