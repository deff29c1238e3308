package kafka

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/parley-project/parley/internal/bus"
)

// judge compares a topic with its plan.
func judge(p TopicPlan, d kadm.TopicDetail, settings map[string]string) []Finding {
	var found []Finding
	warn := func(format string, args ...any) { found = append(found, Finding{Text: fmt.Sprintf(format, args...)}) }
	fatal := func(format string, args ...any) {
		found = append(found, Finding{Fatal: true, Text: fmt.Sprintf(format, args...)})
	}
	found = append(found, judgePlaces(p, d)...)
	found = append(found, judgeCopies(p, copies(d), settings)...)
	judgeCleanup(p, settings, warn, fatal)
	judgeClocks(settings, warn)
	if most := number(settings[settingMaxMessage]); most >= 0 && most < number(p.Settings[settingMaxMessage]) {
		fatal("%s is %d: records that bus.kafka.max_record allows would be refused; set it to %s", settingMaxMessage, most, p.Settings[settingMaxMessage])
	}
	switch codec := settings[settingCompression]; codec {
	case "", "producer", "gzip", "uncompressed":
	default:
		if shared(p.Subject) {
			fatal("%s is %s, which peers of the existing platform cannot read: one record would stop them; set it to producer", settingCompression, codec)
		}
	}
	return found
}

// judgePlaces looks at the partitions of a topic, for which its settings need not be known.
func judgePlaces(p TopicPlan, d kadm.TopicDetail) []Finding {
	var found []Finding
	if n := len(d.Partitions); n < int(p.Partitions) {
		found = append(found, Finding{Text: fmt.Sprintf("it has %d partitions; with %d, as many processes can share its work", n, p.Partitions)})
	}
	if none := leaderless(d); len(none) > 0 {
		found = append(found, Finding{Fatal: true, Text: fmt.Sprintf("partitions %v have no leader; bring their brokers back", none)})
	}
	return found
}

// judgeCopies looks at how safe what is published is. On the topics that the
// existing platform shares the records are all there is; of ours the store knows.
func judgeCopies(p TopicPlan, have int, settings map[string]string) []Finding {
	var found []Finding
	minISR := int(number(settings[settingMinISR]))
	if have < int(p.Replicas) {
		found = append(found, Finding{Text: fmt.Sprintf("it has %d copies, %d brokers could hold %d: a lost broker loses records", have, p.Replicas, p.Replicas)})
	}
	switch {
	case have >= 3 && minISR < 2:
		found = append(found, Finding{Fatal: shared(p.Subject) || p.Subject == bus.SubjectDeadLetters, Text: fmt.Sprintf(
			"%s is %d with %d copies: a confirmed record can be lost with one broker; set it to 2", settingMinISR, minISR, have,
		)})
	case minISR > have:
		found = append(found, Finding{Fatal: true, Text: fmt.Sprintf("%s is %d with %d copies: nothing can be published; set it to %s",
			settingMinISR, minISR, have, p.Settings[settingMinISR])})
	case have > 1 && minISR == have:
		found = append(found, Finding{Text: fmt.Sprintf("%s is %d with %d copies: nothing can be published while one broker is away", settingMinISR, minISR, have)})
	}
	if have > 1 && settings[settingUnclean] == "true" {
		found = append(found, Finding{Fatal: shared(p.Subject) || p.Subject == bus.SubjectDeadLetters, Text: fmt.Sprintf(
			"%s is true: a copy that lacks confirmed records may take the lead, and they are lost; set it to false", settingUnclean,
		)})
	}
	return found
}

// judgeClocks warns of brokers that refuse records of a process whose clock is a
// little off.
func judgeClocks(settings map[string]string, warn func(string, ...any)) {
	for _, name := range []string{settingBefore, settingAfter} {
		if most := number(settings[name]); most >= 0 && most < clocksApart.Milliseconds() {
			warn("%s is %d: records of a process whose clock is off by more than %v are refused; set it to %d at least", name, most,
				time.Duration(most)*time.Millisecond, clocksApart.Milliseconds())
		}
	}
}

func judgeCleanup(p TopicPlan, settings map[string]string, warn, fatal func(string, ...any)) {
	policies := strings.Split(settings[settingCleanup], ",")
	for i := range policies {
		policies[i] = strings.TrimSpace(policies[i])
	}
	compact, deletes := slices.Contains(policies, "compact"), slices.Contains(policies, "delete")
	switch {
	case compact && p.Subject == bus.SubjectResults:
	case compact:
		fatal("%s is %s: of the records of a run only the newest would stay; set it to %s", settingCleanup, settings[settingCleanup], p.Settings[settingCleanup])
	}
	if !deletes {
		warn("%s is %s: it grows for ever; set it to %s", settingCleanup, settings[settingCleanup], p.Settings[settingCleanup])
		return
	}
	if most := number(settings[settingBytes]); most >= 0 {
		warn("%s is %d: of what is not read the oldest is lost as soon as a partition is larger than that; set it to -1", settingBytes, most)
	}
	keeps, wanted := number(settings[settingRetention]), number(p.Settings[settingRetention])
	if day := (24 * time.Hour).Milliseconds(); keeps >= 0 && keeps < day && wanted > day {
		warn("%s is %d (%v): what is not read within that time is lost; set it to %s", settingRetention, keeps,
			time.Duration(keeps)*time.Millisecond, p.Settings[settingRetention])
	}
}

// leaderless gives the partitions that nobody leads.
func leaderless(d kadm.TopicDetail) []int32 {
	var none []int32
	for _, p := range d.Partitions.Sorted() {
		if p.Leader < 0 {
			none = append(none, p.Partition)
		}
	}
	return none
}

// copies is the least number of copies of a partition.
func copies(d kadm.TopicDetail) int {
	least := 0
	for _, p := range d.Partitions {
		if n := len(p.Replicas); least == 0 || n < least {
			least = n
		}
	}
	return least
}

// number reads a setting; -1 also stands for one that is not given.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
