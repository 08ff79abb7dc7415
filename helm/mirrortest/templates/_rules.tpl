{{- /*
The alerts' rules. Those of files/alerts.yaml have templates of Prometheus's own, so that they are not
filled in as a template: `@latency@` stands for a limit.
*/}}
{{- define "mirrortest.rules" -}}
{{- $text := .Files.Get "files/alerts.yaml" }}
{{- $monitoring := .Values.monitoring }}
{{- $about := $monitoring.prometheusRule }}
{{- range $limit, $value := $about.limits }}
{{- if kindIs "string" $value }}
{{- $text = replace (printf "@%s@" $limit) $value $text }}
{{- else }}
{{- $text = replace (printf "@%s@" $limit) (printf "%g" (float64 $value)) $text }}
{{- end }}
{{- end }}
{{- with $monitoring.grafanaUrl }}{{ $text = replace "http://localhost:3000/" (printf "%s/" (trimSuffix "/" .)) $text }}{{ end }}
{{- $rules := list }}
{{- range $rule := (index (fromYaml $text).groups 0).rules }}
{{- if not (get $about.disabled $rule.alert) }}
{{- $_ := set $rule "labels" (merge (dict) $about.additionalRuleLabels $rule.labels) }}
{{- $links := ternary (list) (list "runbook_url" "dashboard_url" "panel_url") (ne $monitoring.grafanaUrl "") }}
{{- range $links }}{{ $_ := unset $rule.annotations . }}{{ end }}
{{- $_ := set $rule "annotations" (merge (dict) $about.additionalRuleAnnotations $rule.annotations) }}
{{- with $monitoring.runbookUrl }}{{ $_ := set $rule.annotations "runbook_url" (replace "{alert}" $rule.alert .) }}{{ end }}
{{- with $about.keepFiringFor }}{{ $_ := set $rule "keep_firing_for" . }}{{ end }}
{{- with get $about.customRules $rule.alert }}
{{- with .for }}{{ $_ := set $rule "for" . }}{{ end }}
{{- with .severity }}{{ $_ := set $rule.labels "severity" . }}{{ end }}
{{- end }}
{{- $rules = append $rules $rule }}
{{- end }}
{{- end }}
{{- $groups := list (dict "name" "mirrortest" "rules" $rules) }}
{{- with $about.extraRules }}{{ $groups = append $groups (dict "name" "mirrortest-extra" "rules" .) }}{{ end }}
{{- toYaml (dict "groups" $groups) }}
{{- end }}
