{{- /* What the schema cannot say: each refusal is a sentence that tells what to set. */}}
{{- define "mirrortest.validate" -}}
{{- $v := .Values }}
{{- if not (or $v.producers.enabled $v.consumers.enabled $v.observers.enabled $v.reconciliation.enabled $v.nightly.enabled $v.monitoring.prometheusRule.enabled $v.monitoring.dashboards.enabled) }}
{{- fail "nothing is switched on: set producers.enabled, consumers.enabled, observers.enabled, reconciliation.enabled or nightly.enabled" }}
{{- end }}
{{- $work := or $v.producers.enabled $v.consumers.enabled $v.observers.enabled $v.reconciliation.enabled }}
{{- if and $work (not $v.run) }}
{{- fail "run is not set: name the test, the same in both data centres, for example run=n20261127" }}
{{- end }}
{{- if and (or $v.producers.enabled $v.observers.enabled) (not $v.source.bootstrapServers) }}
{{- fail "source.bootstrapServers is not set: producers and observers need the brokers of the cluster that the mirror reads, for example dc1:9092" }}
{{- end }}
{{- if and $v.consumers.enabled (not $v.destination.bootstrapServers) }}
{{- fail "destination.bootstrapServers is not set: consumers need the brokers of the cluster that the mirror writes, for example dc2:9092" }}
{{- end }}
{{- if and $v.consumers.enabled $v.consumers.ledgerFromSource (not $v.source.bootstrapServers) }}
{{- fail "source.bootstrapServers is not set: consumers.ledgerFromSource reads the ledger there" }}
{{- end }}
{{- if and $v.reconciliation.enabled $v.reconciliation.lookUp (not $v.destination.bootstrapServers) }}
{{- fail "destination.bootstrapServers is not set: reconciliation.lookUp looks there for what nobody read" }}
{{- end }}
{{- with $v.producers }}
{{- if .enabled }}
{{- if not .topics }}
{{- fail "producers.topics is empty: name the topics to write to" }}
{{- end }}
{{- if and (eq .kind "StatefulSet") (or .duration (gt (int .numRecords) 0)) }}
{{- fail "producers.duration and producers.numRecords end a run, and a StatefulSet would begin it again: set producers.kind=Job, or leave them out" }}
{{- end }}
{{- if and (eq .kind "Job") (not (or .duration (gt (int .numRecords) 0))) }}
{{- fail "producers.kind=Job never ends without producers.duration or producers.numRecords: set one of them" }}
{{- end }}
{{- if lt (int .terminationGracePeriodSeconds) (add (mul 2 (int .drainSeconds)) 15) }}
{{- fail (printf "producers.terminationGracePeriodSeconds=%d cuts the drain off: set it to at least twice producers.drainSeconds plus 15, %d" (int .terminationGracePeriodSeconds) (add (mul 2 (int .drainSeconds)) 15)) }}
{{- end }}
{{- if and (not .createTopics.enabled) (or (gt (int .createTopics.partitions) 0) (gt (int .createTopics.replicationFactor) 0) .createTopics.retention) }}
{{- fail "producers.createTopics has settings of topics that are created: set producers.createTopics.enabled=true, too" }}
{{- end }}
{{- end }}
{{- end }}
{{- range $part := list "producers" "consumers" "observers" }}
{{- with index $v $part }}
{{- $name := include "mirrortest.fullname" $ }}
{{- if and .enabled (eq .kind "StatefulSet") (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name)) }}
{{- fail (printf "%s is no name for the Service of %s: set fullnameOverride to lower-case letters, digits and dashes that begin with a letter, for example mirrortest-dc1" $name $part) }}
{{- end }}
{{- if and .enabled (eq .kind "Job") (eq (int .replicas) 0) }}
{{- fail (printf "%s.kind=Job with %s.replicas=0 would complete at once, and no pod would run: set %s.replicas to 1 or more, or %s.enabled=false" $part $part $part $part) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $part := list "consumers" "observers" }}
{{- with index $v $part }}
{{- if .enabled }}
{{- if and .topics .topicPattern }}
{{- fail (printf "%s.topics and %s.topicPattern exclude each other: leave one out" $part $part) }}
{{- end }}
{{- if not (or .topics .topicPattern) }}
{{- fail (printf "%s.topics is empty: name the topics to read, or set %s.topicPattern" $part $part) }}
{{- end }}
{{- if and .group .shards }}
{{- fail (printf "%s.group and %s.shards exclude each other: partitions are shared by a Kafka group or in fixed parts" $part $part) }}
{{- end }}
{{- if and (gt (int .replicas) 1) (not (or .group .shards)) }}
{{- fail (printf "%s.replicas=%d need to share the partitions: set %s.group=NAME, or %s.shards=true" $part (int .replicas) $part $part) }}
{{- end }}
{{- if and (eq .kind "Job") .shards }}
{{- fail (printf "%s.shards are the StatefulSet's: with %s.kind=Job set %s.group=NAME" $part $part $part) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $labels := dict "commonLabels" $v.commonLabels }}
{{- range $part := list "producers" "consumers" "observers" "reconciliation" "nightly" }}{{ $_ := set $labels (printf "%s.podLabels" $part) (index $v $part).podLabels }}{{ end }}
{{- range $name, $chosen := $labels }}
{{- range $label, $_ := $chosen }}
{{- if regexMatch "^(app[.]kubernetes[.]io/(name|instance|version|managed-by|part-of|component)|helm[.]sh/chart)$" $label }}
{{- fail (printf "%s has %s, which the chart sets itself: leave it out, or name it otherwise" $name $label) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $v.logs.uri $v.logs.volume.existingClaim }}
{{- fail "logs.uri and logs.volume.existingClaim exclude each other: logs are in an object store or on a volume" }}
{{- end }}
{{- range $name, $places := dict "logs.uri" (list $v.logs.uri) "reconciliation.extraLogs" $v.reconciliation.extraLogs "reconciliation.output" (list $v.reconciliation.output) "reconciliation.html" (list $v.reconciliation.html) }}
{{- if regexMatch "://[^/@\\s]*:[^@\\s]*@|[?&](client_secret|sig)=" (join " " $places) }}
{{- fail (printf "%s has credentials in it, and the pods' manifests would show them: put them into a secret as environment variables, for example AWS_SECRET_ACCESS_KEY, and name it in logs.credentials.existingSecret" $name) }}
{{- end }}
{{- end }}
{{- if regexMatch "^(127[.]|::1$|localhost$)" $v.metrics.address }}
{{- fail (printf "metrics.address=%s cannot be reached from outside the pod, so every probe would fail: set it to 0.0.0.0, or leave it out" $v.metrics.address) }}
{{- end }}
{{- range $name := list "output" "html" }}
{{- $place := index $v.reconciliation $name }}
{{- if and $v.reconciliation.enabled $place (not (regexMatch "^(/|[a-zA-Z][a-zA-Z0-9+.-]*://)" $place)) }}
{{- fail (printf "reconciliation.%s=%s is a relative path, and what is written there ends with the pod: use a URI, or a path on a volume, for example /var/lib/mirrortest/logs/%s" $name $place $place) }}
{{- end }}
{{- if and $v.reconciliation.enabled $v.logs.uri (hasPrefix "/var/lib/mirrortest/logs/" $place) }}
{{- fail (printf "reconciliation.%s=%s is on the volume of the logs, and with logs.uri there is none: use a URI" $name $place) }}
{{- end }}
{{- end }}
{{- if and $v.reconciliation.enabled (eq $v.reconciliation.kind "SparkApplication") (not (.Capabilities.APIVersions.Has "sparkoperator.k8s.io/v1beta2")) }}
{{- fail "reconciliation.kind=SparkApplication needs the Spark operator, and this cluster does not know sparkoperator.k8s.io/v1beta2: install it, or set reconciliation.kind=Job" }}
{{- end }}
{{- with $v.nightly }}
{{- if .enabled }}
{{- if not .scenarios }}
{{- fail "nightly.scenarios is empty: name at least one, for example --set-file nightly.scenarios.small=small.toml" }}
{{- end }}
{{- if not $v.source.bootstrapServers }}
{{- fail "source.bootstrapServers is not set: nightly needs the brokers of the cluster that the mirror reads, for example dc1:9092" }}
{{- end }}
{{- if $v.logs.uri }}
{{- fail "logs.uri and nightly.enabled exclude each other: the nights are kept on the volume: leave logs.uri out, in a release of its own" }}
{{- end }}
{{- range $name, $text := .scenarios }}
{{- if regexMatch "(?m)^\\s*\\[\\s*(lab|clusters|kubernetes)\\s*[.\\]]" $text }}
{{- fail (printf "nightly.scenarios.%s has a table [lab], [clusters] or [kubernetes]: leave it out, the clusters are the release's, and the clients run in the night's own pod" $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- range $what, $kind := dict "podMonitor" "PodMonitor" "serviceMonitor" "ServiceMonitor" "prometheusRule" "PrometheusRule" }}
{{- if and (index $v.monitoring $what).enabled (not ($.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) }}
{{- fail (printf "monitoring.%s.enabled needs the Prometheus operator, and this cluster does not know monitoring.coreos.com/v1 %s: install it, or leave this off" $what $kind) }}
{{- end }}
{{- end }}
{{- range $what := list "podMonitor" "serviceMonitor" }}
{{- with index $v.monitoring $what }}
{{- if and .enabled $v.monitoring.prometheusRule.enabled }}
{{- $window := $v.monitoring.prometheusRule.limits.window }}
{{- $interval := include "mirrortest.milliseconds" .interval | atoi }}
{{- if or (eq $interval 0) (gt (mul 4 $interval) (include "mirrortest.milliseconds" $window | atoi | int64)) }}
{{- fail (printf "monitoring.%s.interval=%q does not suit the alerts' monitoring.prometheusRule.limits.window=%s: set it to at most a quarter of that, for example 15s for 1m" $what .interval $window) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $v.monitoring.podMonitor.enabled $v.monitoring.serviceMonitor.enabled }}
{{- fail "monitoring.podMonitor and monitoring.serviceMonitor would scrape everything twice: leave one off" }}
{{- end }}
{{- end }}

{{- /* A duration as Prometheus reads it; 0 where it is empty. */}}
{{- define "mirrortest.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 }}
{{- $sum := 0 }}
{{- range regexFindAll "[0-9]+[a-z]+" . -1 }}
{{- $sum = add $sum (mul (regexFind "[0-9]+" . | atoi) (get $units (regexFind "[a-z]+" .))) }}
{{- end }}
{{- $sum }}
{{- end }}
